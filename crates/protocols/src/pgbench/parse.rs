//! What does the text of an expression say? pgbench's grammar, with its precedence.
//!
//! PostgreSQL 15: `src/bin/pgbench/exprparse.y` and `exprscan.l`.

use super::expression::{Expression, Function};
use super::names::Names;
use super::value::Value;

/// How deep an expression may be nested, and of how many parts it may be made: it is walked by recursion.
const MOST_DEPTH: u32 = 60;
const MOST_PARTS: u32 = 400;

/// How tightly operators bind.
mod binding {
    pub(super) const OR: u8 = 1;
    pub(super) const AND: u8 = 2;
    pub(super) const NOT: u8 = 3;
    pub(super) const IS: u8 = 4;
    pub(super) const COMPARE: u8 = 5;
    pub(super) const BITS: u8 = 6;
    pub(super) const ADD: u8 = 7;
    pub(super) const MULTIPLY: u8 = 8;
    pub(super) const UNARY: u8 = 9;
}

/// Two characters before one.
const SYMBOLS: [&str; 21] = [
    "<<", ">>", "<=", ">=", "<>", "!=", "+", "-", "*", "/", "%", "=", "<", ">", "&", "|", "#", "~", "(", ")",
    ",",
];

#[derive(Debug, Clone, Copy, PartialEq)]
enum Token<'a> {
    End,
    Integer(i64),
    /// 2^63, which stands only behind a minus.
    OneTooMany,
    Double(f64),
    Variable(&'a str),
    Word(&'a str),
    Symbol(&'static str),
}

/// Reads an expression; an error says what is wrong with it.
pub(super) fn expression(text: &str, names: &mut Names) -> Result<Expression, String> {
    let mut parser = Parser { rest: text, token: Token::End, depth: 0, parts: 0, names };
    parser.advance()?;
    if parser.token == Token::End {
        return Err("the expression is missing".to_owned());
    }
    let expression = parser.operators(0)?;
    if parser.token != Token::End {
        return Err(parser.unexpected());
    }
    Ok(expression)
}

struct Parser<'a> {
    rest: &'a str,
    token: Token<'a>,
    depth: u32,
    parts: u32,
    names: &'a mut Names,
}

impl<'a> Parser<'a> {
    fn advance(&mut self) -> Result<(), String> {
        self.parts += 1;
        if self.parts > MOST_PARTS {
            return Err(format!("the expression has more than {MOST_PARTS} parts"));
        }
        self.rest = self.rest.trim_start();
        let text = self.rest;
        let Some(first) = text.chars().next() else {
            self.token = Token::End;
            return Ok(());
        };
        let (token, length) = match first {
            '0'..='9' | '.' => number(text)?,
            ':' => {
                let name = word(&text[1..]);
                if name.is_empty() {
                    return Err("a colon without a variable's name".to_owned());
                }
                (Token::Variable(name), 1 + name.len())
            }
            c if c.is_ascii_alphabetic() || c == '_' => (Token::Word(word(text)), word(text).len()),
            _ => match SYMBOLS.iter().find(|symbol| text.starts_with(**symbol)) {
                Some(symbol) => (Token::Symbol(symbol), symbol.len()),
                None => return Err(format!("{first:?} has no meaning in an expression")),
            },
        };
        self.token = token;
        self.rest = &text[length..];
        Ok(())
    }

    fn unexpected(&self) -> String {
        match self.token {
            Token::End => "the expression ends too early".to_owned(),
            Token::Integer(n) => format!("{n} has no place there"),
            Token::OneTooMany => "an integer is out of range".to_owned(),
            Token::Double(n) => format!("{n} has no place there"),
            Token::Variable(name) => format!(":{name} has no place there"),
            Token::Word(text) => format!("{text:?} has no place there"),
            Token::Symbol(text) => format!("{text:?} has no place there"),
        }
    }

    /// Takes this word, if it is next.
    fn takes(&mut self, word: &str) -> Result<bool, String> {
        let is_next = matches!(self.token, Token::Word(text) if text.eq_ignore_ascii_case(word));
        if is_next {
            self.advance()?;
        }
        Ok(is_next)
    }

    fn expect(&mut self, word: &str) -> Result<(), String> {
        if self.takes(word)? { Ok(()) } else { Err(format!("{}: {word} should be", self.unexpected())) }
    }

    fn takes_symbol(&mut self, symbol: &str) -> Result<bool, String> {
        let is_next = matches!(self.token, Token::Symbol(text) if text == symbol);
        if is_next {
            self.advance()?;
        }
        Ok(is_next)
    }

    /// An operand, and what operators that bind at least so tightly make of it.
    fn operators(&mut self, least: u8) -> Result<Expression, String> {
        self.depth += 1;
        if self.depth > MOST_DEPTH {
            return Err(format!("the expression is nested more than {MOST_DEPTH} deep"));
        }
        let mut left = self.operand()?;
        let mut last = u8::MAX;
        while let Some((level, function, swapped)) = self.operator() {
            if level < least {
                break;
            }
            if level == last && matches!(level, binding::COMPARE | binding::IS) {
                return Err("comparisons in a row need parentheses".to_owned());
            }
            last = level;
            self.advance()?;
            if level == binding::IS {
                left = self.is(left, function)?;
                continue;
            }
            let right = self.operators(level + 1)?;
            let both = if swapped { [right, left] } else { [left, right] };
            left = match (level, function) {
                (binding::OR, _) => Expression::Or(Box::new(both)),
                (binding::AND, _) => Expression::And(Box::new(both)),
                (_, Some(function)) => Expression::Call(function, both.into()),
                (_, None) => return Err(self.unexpected()),
            };
        }
        self.depth -= 1;
        Ok(left)
    }

    /// The operator that is next: how tightly it binds, what it computes, and whether from its operands in turn.
    fn operator(&self) -> Option<(u8, Option<Function>, bool)> {
        use Function as F;
        let (level, function) = match self.token {
            Token::Word(word) => match word.to_ascii_lowercase().as_str() {
                "or" => (binding::OR, None),
                "and" => (binding::AND, None),
                "is" => (binding::IS, None),
                "isnull" => (binding::IS, Some(F::Is)),
                "notnull" => (binding::IS, Some(F::Not)),
                _ => return None,
            },
            Token::Symbol(symbol) => match symbol {
                "=" => (binding::COMPARE, Some(F::Equal)),
                "<>" | "!=" => (binding::COMPARE, Some(F::NotEqual)),
                "<" => (binding::COMPARE, Some(F::Less)),
                "<=" => (binding::COMPARE, Some(F::LessOrEqual)),
                ">" => return Some((binding::COMPARE, Some(F::Less), true)),
                ">=" => return Some((binding::COMPARE, Some(F::LessOrEqual), true)),
                "|" => (binding::BITS, Some(F::BitOr)),
                "&" => (binding::BITS, Some(F::BitAnd)),
                "#" => (binding::BITS, Some(F::BitXor)),
                "<<" => (binding::BITS, Some(F::ShiftLeft)),
                ">>" => (binding::BITS, Some(F::ShiftRight)),
                "+" => (binding::ADD, Some(F::Add)),
                "-" => (binding::ADD, Some(F::Subtract)),
                "*" => (binding::MULTIPLY, Some(F::Multiply)),
                "/" => (binding::MULTIPLY, Some(F::Divide)),
                "%" => (binding::MULTIPLY, Some(F::Modulo)),
                _ => return None,
            },
            _ => return None,
        };
        Some((level, function, false))
    }

    /// What follows IS, or ISNULL and NOTNULL, which are complete.
    fn is(&mut self, left: Expression, complete: Option<Function>) -> Result<Expression, String> {
        let (negated, value) = match complete {
            Some(function) => (function == Function::Not, Value::Null),
            None => {
                let negated = self.takes("not")?;
                let value = if self.takes("null")? {
                    Value::Null
                } else if self.takes("true")? {
                    Value::Boolean(true)
                } else {
                    self.expect("false")?;
                    Value::Boolean(false)
                };
                (negated, value)
            }
        };
        let is = Expression::Call(Function::Is, vec![left, Expression::Constant(value)]);
        Ok(if negated { Expression::Call(Function::Not, vec![is]) } else { is })
    }

    fn operand(&mut self) -> Result<Expression, String> {
        let token = self.token;
        if token == Token::End {
            return Err(self.unexpected());
        }
        self.advance()?;
        match token {
            Token::Integer(n) => Ok(Expression::Constant(Value::Integer(n))),
            Token::Double(n) => Ok(Expression::Constant(Value::Double(n))),
            Token::Variable(name) => Ok(Expression::Variable(self.names.used(name))),
            Token::Symbol("(") => {
                let inner = self.operators(0)?;
                if self.takes_symbol(")")? {
                    Ok(inner)
                } else {
                    Err("a parenthesis is not closed".to_owned())
                }
            }
            Token::Symbol("+") => self.operators(binding::UNARY),
            Token::Symbol("-") if self.token == Token::OneTooMany => {
                self.advance()?;
                Ok(Expression::Constant(Value::Integer(i64::MIN)))
            }
            Token::Symbol("-") => {
                let zero = Expression::Constant(Value::Integer(0));
                Ok(Expression::Call(Function::Subtract, vec![zero, self.operators(binding::UNARY)?]))
            }
            Token::Symbol("~") => {
                let ones = Expression::Constant(Value::Integer(-1));
                Ok(Expression::Call(Function::BitXor, vec![ones, self.operators(binding::ADD)?]))
            }
            Token::Word(word) => self.word(word),
            other => {
                self.token = other;
                Err(self.unexpected())
            }
        }
    }

    /// What a word begins, which was taken already.
    fn word(&mut self, word: &str) -> Result<Expression, String> {
        let name = word.to_ascii_lowercase();
        match name.as_str() {
            "null" => Ok(Expression::Constant(Value::Null)),
            "true" => Ok(Expression::Constant(Value::Boolean(true))),
            "false" => Ok(Expression::Constant(Value::Boolean(false))),
            "not" => Ok(Expression::Call(Function::Not, vec![self.operators(binding::NOT)?])),
            "case" => self.case(),
            _ => self.function(word, &name),
        }
    }

    fn case(&mut self) -> Result<Expression, String> {
        let mut arms = Vec::new();
        self.expect("when")?;
        loop {
            let condition = self.operators(0)?;
            self.expect("then")?;
            arms.push([condition, self.operators(0)?]);
            if !self.takes("when")? {
                break;
            }
        }
        let otherwise =
            if self.takes("else")? { self.operators(0)? } else { Expression::Constant(Value::Null) };
        self.expect("end")?;
        Ok(Expression::Case(arms, Box::new(otherwise)))
    }

    fn function(&mut self, word: &str, name: &str) -> Result<Expression, String> {
        let Some((function, takes)) = Function::named(name) else {
            return Err(format!("pgbench 15 has no function {word:?} that computes a value"));
        };
        if !self.takes_symbol("(")? {
            return Err(format!("{name} is a function: its arguments stand in parentheses"));
        }
        let mut arguments = Vec::new();
        if !self.takes_symbol(")")? {
            loop {
                arguments.push(self.operators(0)?);
                if !self.takes_symbol(",")? {
                    break;
                }
            }
            if !self.takes_symbol(")")? {
                return Err(format!("the arguments of {name} do not end in a parenthesis"));
            }
        }
        let given = arguments.len();
        if !takes.contains(&given) {
            let wanted = match (*takes.start(), *takes.end()) {
                (low, usize::MAX) => format!("{low} or more"),
                (low, high) if low == high => low.to_string(),
                (low, high) => format!("{low} or {high}"),
            };
            return Err(format!("{name} takes {wanted} arguments, not {given}"));
        }
        if function.has_seed() && given < *takes.end() {
            arguments.push(Expression::Variable(self.names.used("default_seed")));
        }
        Ok(Expression::Call(function, arguments))
    }
}

/// The letters, digits and underscores that a text begins with.
fn word(text: &str) -> &str {
    let end = text.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(text.len());
    &text[..end]
}

fn number(text: &str) -> Result<(Token<'_>, usize), String> {
    let bytes = text.as_bytes();
    let digits = |from: usize| bytes[from..].iter().take_while(|b| b.is_ascii_digit()).count();
    let mut end = digits(0);
    let mut is_double = false;
    if bytes.get(end) == Some(&b'.') {
        is_double = true;
        end += 1 + digits(end + 1);
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        let exponent = digits((end + 1 + sign).min(bytes.len()));
        if exponent > 0 {
            is_double = true;
            end += 1 + sign + exponent;
        }
    }
    let written = &text[..end];
    let out_of_range = || format!("{written} is not a number that fits");
    let token = if is_double {
        Token::Double(written.parse().ok().filter(|n: &f64| n.is_finite()).ok_or_else(out_of_range)?)
    } else if written == "9223372036854775808" {
        Token::OneTooMany
    } else {
        Token::Integer(written.parse().map_err(|_| out_of_range())?)
    };
    Ok((token, end))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::expression::Scope;
    use super::super::random::Random;
    use super::*;

    struct Alone(Random);

    impl Scope for Alone {
        fn variable(&self, number: usize) -> Result<Value, String> {
            Ok(Value::Integer(number as i64 + 1))
        }

        fn random(&mut self) -> &mut Random {
            &mut self.0
        }
    }

    fn value(text: &str) -> Result<Value, String> {
        expression(text, &mut Names::default())?.evaluate(&mut Alone(Random::new(1)))
    }

    fn written(text: &str) -> String {
        let mut out = Vec::new();
        value(text).unwrap_or_else(|why| panic!("{text}: {why}")).write(&mut out);
        String::from_utf8(out).unwrap()
    }

    /// Each was asked of pgbench 15.18: `\set x …` and `SELECT ':x'` with `pgbench -n -d -f`.
    #[test]
    fn values_are_those_of_pgbench() {
        for line in include_str!("tests/expressions.txt").lines() {
            let (text, expected) = line.split_once(" => ").unwrap();
            assert_eq!(written(text), expected, "{text}");
        }
    }

    #[test]
    fn what_cannot_be_computed_is_told() {
        for (text, why) in [
            ("1 / 0", "division by zero"),
            ("1 % 0", "division by zero"),
            ("mod(1, 0)", "division by zero"),
            ("9223372036854775807 + 1", "bigint add out of range"),
            ("-9223372036854775808 - 1", "bigint sub out of range"),
            ("9223372036854775807 * 2", "bigint mul out of range"),
            ("-9223372036854775808 / -1", "bigint div out of range"),
            ("abs(-9223372036854775808)", "out of range"),
            ("int(1e30)", "overflow"),
            ("true + 1", "cannot coerce boolean to int"),
            ("1 and true", "cannot coerce int to boolean"),
            ("random(2, 1)", "empty"),
            ("random_zipfian(1, 9, 1.0)", "zipfian parameter"),
            ("permute(1, 0)", "greater than zero"),
        ] {
            let said = value(text).expect_err(text);
            assert!(said.contains(why), "{text}: {said}");
        }
    }

    #[test]
    fn what_is_no_expression_is_told() {
        for (text, why) in [
            ("", "missing"),
            ("1 +", "too early"),
            ("(1", "not closed"),
            ("1 2", "2 has no place"),
            ("1 < 2 < 3", "parentheses"),
            ("sin(1)", "no function \"sin\""),
            ("random(1)", "takes 2 arguments, not 1"),
            ("pi(1)", "takes 0 arguments"),
            ("least()", "1 or more"),
            ("random", "parentheses"),
            ("9223372036854775808", "out of range"),
            ("99999999999999999999", "fits"),
            ("1e999", "fits"),
            ("case 1 end", "when should be"),
            ("1 is 2", "false should be"),
            ("'text'", "no meaning"),
            (": x", "colon"),
            (&"(".repeat(100_000), "nested"),
            (&"-".repeat(100_000), "nested"),
            (&format!("1{}", "+1".repeat(100_000)), "more than 400 parts"),
        ] {
            let said = value(text).expect_err(why);
            assert!(said.contains(why), "{said}");
        }
    }

    proptest! {
        #[test]
        fn any_text_has_a_value_or_an_error(text in "[-+*/%<>=!~|&#(),.:0-9a-z e]{0,40}|.{0,40}") {
            let _ = value(&text);
        }

        #[test]
        fn any_words_have_a_value_or_an_error(
            words in prop::collection::vec(
                prop::sample::select(vec![
                    "1", "-", "9223372036854775807", "1e308", "0", ":x", "(", ")", ",", "random(", "permute(", "hash(",
                    "random_zipfian(", "random_gaussian(", "random_exponential(", "+", "*", "/", "%", "<<", ">>", "is",
                    "null", "not", "and", "or", "case", "when", "then", "else", "end", "least(", "int(", "pow(", "2.5",
                ]),
                0..30,
            )
        ) {
            let _ = value(&words.join(" "));
        }

        #[test]
        fn draws_stay_in_their_range(low in -1_000_i64..1_000, span in 0_i64..1_000, seed: u64) {
            let mut scope = Alone(Random::new(seed));
            for draw in ["random(L, H)", "random_gaussian(L, H, 2)", "random_exponential(L, H, 0.1)",
                "random_zipfian(L, H, 1.1)"] {
                let text = draw.replace('L', &low.to_string()).replace('H', &(low + span).to_string());
                let value = expression(&text, &mut Names::default()).unwrap().evaluate(&mut scope).unwrap();
                prop_assert!((low..=low + span).contains(&value.integer().unwrap()), "{}", text);
            }
        }
    }
}
