//! What is an expression worth? The operators and functions of pgbench 15, as its documentation has them.

use super::random::{self, Random, Range};
use super::value::Value;

/// An expression, its variables by number.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Expression {
    Constant(Value),
    Variable(usize),
    Call(Function, Vec<Expression>),
    /// Looks at the second only if the first does not decide.
    And(Box<[Expression; 2]>),
    Or(Box<[Expression; 2]>),
    /// Conditions with what they lead to, and what holds otherwise.
    Case(Vec<[Expression; 2]>, Box<Expression>),
}

/// What is computed from values that are all there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Function {
    Abs,
    Add,
    BitAnd,
    BitOr,
    BitXor,
    Divide,
    Double,
    Equal,
    Exp,
    Greatest,
    HashFnv1a,
    HashMurmur2,
    Int,
    Is,
    Least,
    Less,
    LessOrEqual,
    Ln,
    Modulo,
    Multiply,
    Not,
    NotEqual,
    Permute,
    Pi,
    Power,
    Random,
    RandomExponential,
    RandomGaussian,
    RandomZipfian,
    ShiftLeft,
    ShiftRight,
    Sqrt,
    Subtract,
}

impl Function {
    /// A function by its name, and how many arguments it takes.
    pub(super) fn named(name: &str) -> Option<(Self, std::ops::RangeInclusive<usize>)> {
        Some(match name {
            "abs" => (Self::Abs, 1..=1),
            "double" => (Self::Double, 1..=1),
            "exp" => (Self::Exp, 1..=1),
            "greatest" => (Self::Greatest, 1..=usize::MAX),
            "hash" | "hash_murmur2" => (Self::HashMurmur2, 1..=2),
            "hash_fnv1a" => (Self::HashFnv1a, 1..=2),
            "int" => (Self::Int, 1..=1),
            "least" => (Self::Least, 1..=usize::MAX),
            "ln" => (Self::Ln, 1..=1),
            "mod" => (Self::Modulo, 2..=2),
            "permute" => (Self::Permute, 2..=3),
            "pi" => (Self::Pi, 0..=0),
            "pow" | "power" => (Self::Power, 2..=2),
            "random" => (Self::Random, 2..=2),
            "random_exponential" => (Self::RandomExponential, 3..=3),
            "random_gaussian" => (Self::RandomGaussian, 3..=3),
            "random_zipfian" => (Self::RandomZipfian, 3..=3),
            "sqrt" => (Self::Sqrt, 1..=1),
            _ => return None,
        })
    }

    /// Whether its last argument is `default_seed` where it is left out.
    pub(super) fn has_seed(self) -> bool {
        matches!(self, Self::HashFnv1a | Self::HashMurmur2 | Self::Permute)
    }
}

/// What an expression can see.
pub(super) trait Scope {
    /// The value of a variable.
    fn variable(&self, number: usize) -> Result<Value, String>;
    /// Where random values come from.
    fn random(&mut self) -> &mut Random;
}

impl Expression {
    /// Its value; an error says what cannot be computed.
    pub(super) fn evaluate(&self, scope: &mut impl Scope) -> Result<Value, String> {
        match self {
            Self::Constant(value) => Ok(*value),
            Self::Variable(number) => scope.variable(*number),
            Self::And(both) => decide(both, false, scope),
            Self::Or(both) => decide(both, true, scope),
            Self::Case(arms, otherwise) => {
                for [condition, value] in arms {
                    if condition.evaluate(scope)?.holds() {
                        return value.evaluate(scope);
                    }
                }
                otherwise.evaluate(scope)
            }
            Self::Call(function @ (Function::Least | Function::Greatest), arguments) => {
                extreme(*function, arguments, scope)
            }
            Self::Call(function, arguments) => {
                let mut values = [Value::Null; 3];
                for (value, argument) in values.iter_mut().zip(arguments) {
                    *value = argument.evaluate(scope)?;
                }
                let given = &values[..arguments.len().min(3)];
                if *function != Function::Is && given.contains(&Value::Null) {
                    return Ok(Value::Null);
                }
                call(*function, values, scope)
            }
        }
    }
}

impl Expression {
    /// Tells each variable that is asked for.
    pub(super) fn each_variable(&self, tell: &mut impl FnMut(usize)) {
        match self {
            Self::Constant(_) => {}
            Self::Variable(number) => tell(*number),
            Self::And(both) | Self::Or(both) => both.iter().for_each(|side| side.each_variable(tell)),
            Self::Call(_, arguments) => arguments.iter().for_each(|argument| argument.each_variable(tell)),
            Self::Case(arms, otherwise) => {
                arms.iter().flatten().for_each(|part| part.each_variable(tell));
                otherwise.each_variable(tell);
            }
        }
    }
}

/// AND, which false decides, or OR, which true decides.
fn decide(both: &[Expression; 2], deciding: bool, scope: &mut impl Scope) -> Result<Value, String> {
    for side in both {
        match side.evaluate(scope)? {
            Value::Null => return Ok(Value::Null),
            value if value.boolean()? == deciding => return Ok(Value::Boolean(deciding)),
            _ => {}
        }
    }
    Ok(Value::Boolean(!deciding))
}

/// `least` or `greatest`: of doubles, if there is one among them.
fn extreme(function: Function, arguments: &[Expression], scope: &mut impl Scope) -> Result<Value, String> {
    let mut best: Option<Value> = None;
    let mut null = false;
    for argument in arguments {
        let value = argument.evaluate(scope)?;
        null |= value == Value::Null;
        if null {
            continue;
        }
        best = Some(match (best, value) {
            (None, value) => {
                value.double()?;
                value
            }
            (Some(Value::Integer(a)), Value::Integer(b)) => {
                Value::Integer(if function == Function::Least { a.min(b) } else { a.max(b) })
            }
            (Some(a), b) => {
                let (a, b) = (a.double()?, b.double()?);
                Value::Double(if function == Function::Least { a.min(b) } else { a.max(b) })
            }
        });
    }
    Ok(best.filter(|_| !null).unwrap_or(Value::Null))
}

fn call(function: Function, values: [Value; 3], scope: &mut impl Scope) -> Result<Value, String> {
    let [a, b, c] = values;
    Ok(match function {
        Function::Add
        | Function::Subtract
        | Function::Multiply
        | Function::Divide
        | Function::Equal
        | Function::NotEqual
        | Function::Less
        | Function::LessOrEqual => match (a, b) {
            (Value::Double(_), _) | (_, Value::Double(_)) => of_doubles(function, a.double()?, b.double()?),
            _ => of_integers(function, a.integer()?, b.integer()?)?,
        },
        Function::Modulo => match (a.integer()?, b.integer()?) {
            (_, 0) => return Err("division by zero".to_owned()),
            (a, b) => Value::Integer(a.wrapping_rem(b)),
        },
        Function::BitAnd => Value::Integer(a.integer()? & b.integer()?),
        Function::BitOr => Value::Integer(a.integer()? | b.integer()?),
        Function::BitXor => Value::Integer(a.integer()? ^ b.integer()?),
        // as the processors do for which pgbench is built: only the last six bits count
        Function::ShiftLeft => Value::Integer(a.integer()?.wrapping_shl(b.integer()? as u32)),
        Function::ShiftRight => Value::Integer(a.integer()?.wrapping_shr(b.integer()? as u32)),
        Function::Not => Value::Boolean(!a.boolean()?),
        Function::Is => Value::Boolean(a == b),
        Function::Abs => match a {
            Value::Double(double) => Value::Double(double.abs()),
            other => Value::Integer(other.integer()?.checked_abs().ok_or("bigint out of range")?),
        },
        Function::Double => Value::Double(a.double()?),
        Function::Int => Value::Integer(a.integer()?),
        Function::Exp => Value::Double(a.double()?.exp()),
        Function::Ln => Value::Double(a.double()?.ln()),
        Function::Sqrt => Value::Double(a.double()?.sqrt()),
        Function::Pi => Value::Double(std::f64::consts::PI),
        Function::Power => Value::Double(a.double()?.powf(b.double()?)),
        Function::HashFnv1a => Value::Integer(random::fnv1a(a.integer()?, b.integer()?)),
        Function::HashMurmur2 => Value::Integer(random::murmur2(a.integer()?, b.integer()?)),
        Function::Permute => Value::Integer(random::permute(a.integer()?, b.integer()?, c.integer()?)?),
        Function::Random => Value::Integer(scope.random().uniform(range(a, b)?)),
        Function::RandomExponential => Value::Integer(scope.random().exponential(range(a, b)?, c.double()?)?),
        Function::RandomGaussian => Value::Integer(scope.random().gaussian(range(a, b)?, c.double()?)?),
        Function::RandomZipfian => Value::Integer(scope.random().zipfian(range(a, b)?, c.double()?)?),
        Function::Least | Function::Greatest => Value::Null,
    })
}

fn range(low: Value, high: Value) -> Result<Range, String> {
    Range::new(low.integer()?, high.integer()?)
}

fn of_doubles(function: Function, a: f64, b: f64) -> Value {
    match function {
        Function::Add => Value::Double(a + b),
        Function::Subtract => Value::Double(a - b),
        Function::Multiply => Value::Double(a * b),
        Function::Divide => Value::Double(a / b),
        Function::Equal => Value::Boolean(a == b),
        Function::NotEqual => Value::Boolean(a != b),
        Function::Less => Value::Boolean(a < b),
        _ => Value::Boolean(a <= b),
    }
}

fn of_integers(function: Function, a: i64, b: i64) -> Result<Value, String> {
    let fits = |result: Option<i64>, what: &str| {
        result.map(Value::Integer).ok_or_else(|| format!("bigint {what} out of range"))
    };
    match function {
        Function::Add => fits(a.checked_add(b), "add"),
        Function::Subtract => fits(a.checked_sub(b), "sub"),
        Function::Multiply => fits(a.checked_mul(b), "mul"),
        Function::Divide if b == 0 => Err("division by zero".to_owned()),
        Function::Divide => fits(a.checked_div(b), "div"),
        Function::Equal => Ok(Value::Boolean(a == b)),
        Function::NotEqual => Ok(Value::Boolean(a != b)),
        Function::Less => Ok(Value::Boolean(a < b)),
        _ => Ok(Value::Boolean(a <= b)),
    }
}
