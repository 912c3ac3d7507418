//! How does a person write a Redis command, and how does it go to the server?
//!
//! Words and quotes are those of redis-cli (`sdssplitargs` in Redis' sds.c).

/// Commands after which a connection no longer gives one answer to each thing asked.
const CHANGES: [&str; 10] =
    ["SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "MONITOR", "HELLO", "SYNC", "PSYNC", "MULTI", "RESET", "QUIT"];

/// An array of bulk strings, in which a word may hold anything.
pub(super) fn write<W: AsRef<[u8]>>(words: &[W]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", words.len()).into_bytes();
    for word in words.iter().map(AsRef::as_ref) {
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
    out
}

/// The most commands that one operation has.
const MOST_COMMANDS: usize = 10_000;

/// The commands of a text: one on each line that is not blank.
pub(super) fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| !line.trim().is_empty())
}

/// Whether the text is one or more commands that a held connection can be told again and again.
pub(super) fn check(text: &str) -> Result<(), String> {
    match lines(text).count() {
        0 => Err("a Redis command is expected, such as GET key".to_owned()),
        n if n > MOST_COMMANDS => Err(format!("{n} commands; an operation has at most {MOST_COMMANDS}")),
        _ => lines(text).try_for_each(check_one),
    }
}

fn check_one(text: &str) -> Result<(), String> {
    let words = read(text)?;
    let Some(name) = words.first() else { return Ok(()) };
    let is = |word: &[u8], name: &str| word.eq_ignore_ascii_case(name.as_bytes());
    let silences = is(name, "CLIENT") && words.get(1).is_some_and(|word| is(word, "REPLY"));
    if silences || CHANGES.iter().any(|change| is(name, change)) {
        let name = String::from_utf8_lossy(name).to_ascii_uppercase();
        return Err(format!("{name} changes how the connection answers; choose a command with one answer"));
    }
    Ok(())
}

/// The words of a command line; the error says where it cannot be read.
pub(super) fn read(text: &str) -> Result<Vec<Vec<u8>>, String> {
    let mut words = Vec::new();
    let mut rest = text.trim_start().as_bytes();
    while !rest.is_empty() {
        let (word, after) = word(rest).map_err(|what| format!("{text:?} cannot be read: {what}"))?;
        words.push(word);
        rest = after.trim_ascii_start();
    }
    Ok(words)
}

/// The first word, and what follows it. Quotes may begin inside of a word, and end it.
fn word(mut rest: &[u8]) -> Result<(Vec<u8>, &[u8]), &'static str> {
    let mut word = Vec::new();
    loop {
        match rest {
            [] => return Ok((word, rest)),
            [byte, ..] if byte.is_ascii_whitespace() => return Ok((word, rest)),
            [quote @ (b'"' | b'\''), inside @ ..] => {
                let after = quoted(*quote, inside, &mut word)?;
                return match after.first() {
                    Some(byte) if !byte.is_ascii_whitespace() => {
                        Err("a closing quote must be followed by a space")
                    }
                    _ => Ok((word, after)),
                };
            }
            [byte, after @ ..] => {
                word.push(*byte);
                rest = after;
            }
        }
    }
}

/// Appends what stands up to the closing quote; gives what follows it.
fn quoted<'a>(quote: u8, mut rest: &'a [u8], word: &mut Vec<u8>) -> Result<&'a [u8], &'static str> {
    loop {
        let (byte, after) = match rest {
            [] => return Err("a quote is not closed"),
            [byte, after @ ..] if *byte == quote => return Ok(after),
            [b'\\', b'\'', after @ ..] if quote == b'\'' => (b'\'', after),
            [b'\\', b'x', high, low, after @ ..]
                if quote == b'"' && high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                (nibble(*high) << 4 | nibble(*low), after)
            }
            [b'\\', escaped, after @ ..] if quote == b'"' => (
                match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 0x08,
                    b'a' => 0x07,
                    other => *other,
                },
                after,
            ),
            [byte, after @ ..] => (*byte, after),
        };
        word.push(byte);
        rest = after;
    }
}

/// What a hexadecimal digit stands for.
fn nibble(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<Vec<u8>> {
        read(text).unwrap()
    }

    #[test]
    fn words_and_quotes_as_redis_cli_has_them() {
        assert_eq!(words("  SET key  \"a b\" "), [&b"SET"[..], b"key", b"a b"]);
        assert_eq!(
            words(r#"SET k "\x00\xfF\n\"\q" 'it\'s \n'"#),
            [&b"SET"[..], b"k", b"\0\xff\n\"q", b"it's \\n"]
        );
        assert_eq!(words("SET k \"\" ''"), [&b"SET"[..], b"k", b"", b""]);
        assert_eq!(words("GET k\"e y\""), [&b"GET"[..], b"ke y"]);
        assert!(words(" ").is_empty());
        assert_eq!(write(&words("GET \"a\\r\\n\"")), b"*2\r\n$3\r\nGET\r\n$3\r\na\r\n\r\n");
    }

    #[test]
    fn what_cannot_be_told_again_and_again_is_refused() {
        let says = |text: &str| check(text).unwrap_err();
        assert!(says("SET k \"a").contains("a quote is not closed"));
        assert!(says("SET k \"a\"b").contains("followed by a space"));
        assert!(says(" ").contains("GET key"));
        for text in ["subscribe a", "Client Reply OFF", "MULTI", "HELLO 3"] {
            assert!(says(text).contains("changes how the connection answers"), "{text}");
        }
        assert!(says("GET a\nMULTI").contains("MULTI changes"));
        assert!(says(&"GET a\n".repeat(10_001)).contains("at most 10000"));
        assert_eq!((check("CLIENT INFO"), check("GET a\n\n  GET b\n")), (Ok(()), Ok(())));
    }
}
