//! What do the heads of HTTP/1.1 messages say? Shared by http, ws, sse and the serving side.

use httparse::{EMPTY_HEADER, Header, Status};
use model::{Failure, FailureKind, Metadata};

use crate::Plan;
use crate::body::Body;
use crate::quote::{against_protocol, quote};

/// How we introduce ourselves.
pub(crate) const AGENT: &str = concat!("plimsoll/", env!("CARGO_PKG_VERSION"));

/// The largest response head that is waited for.
const MOST_HEAD: usize = 64 * 1024;

/// The most header fields that are read.
pub(crate) const MOST_FIELDS: usize = 96;

/// The fields of one head, in order.
pub(crate) struct Fields<'a> {
    all: [Header<'a>; MOST_FIELDS],
    count: usize,
}

impl<'a> Fields<'a> {
    /// Wraps what httparse found.
    pub(crate) fn new(all: [Header<'a>; MOST_FIELDS], count: usize) -> Self {
        Self { all, count }
    }

    /// Every value of the named field, in order, without surrounding blanks.
    pub(crate) fn values(&self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        self.all[..self.count]
            .iter()
            .filter(move |h| h.name.eq_ignore_ascii_case(name))
            .map(|h| h.value.trim_ascii())
    }

    /// Whether one of the comma-separated values of the named field is this token, in any case.
    pub(crate) fn has_token(&self, name: &str, token: &str) -> bool {
        self.values(name)
            .flat_map(|value| value.split(|&b| b == b','))
            .any(|item| item.trim_ascii().eq_ignore_ascii_case(token.as_bytes()))
    }

    /// The value of Content-Length; `None` without the field (RFC 9110, section 8.6: a list of equal values
    /// counts once).
    pub(crate) fn content_length(&self) -> Result<Option<u64>, &'static str> {
        let mut length = None;
        for item in self.values("content-length").flat_map(|value| value.split(|&b| b == b',')) {
            let n = decimal(item.trim_ascii()).ok_or("its Content-Length is not a number")?;
            if length.is_some_and(|earlier| earlier != n) {
                return Err("it has two different Content-Lengths");
            }
            length = Some(n);
        }
        Ok(length)
    }
}

/// Digits only: Rust's own parser would take a sign.
fn decimal(digits: &[u8]) -> Option<u64> {
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// The head of a response (RFC 9112, section 4).
pub(crate) struct Head<'a> {
    /// The status code.
    pub(crate) code: u16,
    /// The header fields.
    pub(crate) fields: Fields<'a>,
    /// How many bytes the head has, with its empty line.
    pub(crate) length: usize,
    /// The status line, for quoting.
    line: &'a [u8],
    /// HTTP/1.x.
    minor: u8,
}

impl<'a> Head<'a> {
    /// Reads the head at the front of `bytes`; `None` while its end is not there.
    pub(crate) fn read(bytes: &'a [u8]) -> Result<Option<Self>, Failure> {
        let mut all = [EMPTY_HEADER; MOST_FIELDS];
        let mut response = httparse::Response::new(&mut all);
        let length = match response.parse(bytes) {
            Ok(Status::Complete(length)) => length,
            Ok(Status::Partial) if bytes.len() <= MOST_HEAD => return Ok(None),
            Ok(Status::Partial) => MOST_HEAD + 1,
            Err(error) => return Err(not_http(bytes, error)),
        };
        if length > MOST_HEAD {
            return Err(against_protocol("the head of the server's answer is larger than 64 KiB"));
        }
        let (Some(code), Some(minor)) = (response.code, response.version) else { return Ok(None) };
        let count = response.headers.len();
        let line = bytes[..length].trim_ascii_start().split(|&b| b == b'\n').next().unwrap_or_default();
        Ok(Some(Self { code, fields: Fields::new(all, count), length, line: line.trim_ascii_end(), minor }))
    }

    /// Whether this only announces the real answer (RFC 9110, section 15.2); 101 is a real answer.
    pub(crate) fn is_interim(&self) -> bool {
        self.code < 200 && self.code != 101
    }

    /// How the body of this answer is delimited, unless to a HEAD (RFC 9112, section 6.3).
    pub(crate) fn body(&self) -> Result<Body, Failure> {
        if self.code < 200 || self.code == 204 || self.code == 304 {
            return Ok(Body::Ended);
        }
        let faulty = |what: &str| against_protocol(format!("the server's answer cannot be read: {what}"));
        if let Some(codings) = self.fields.values("transfer-encoding").last() {
            if self.minor == 0 {
                return Err(faulty("it has a Transfer-Encoding, which HTTP/1.0 does not know"));
            }
            let last = codings.rsplit(|&b| b == b',').next().unwrap_or_default();
            let chunked = last.trim_ascii().eq_ignore_ascii_case(b"chunked");
            return Ok(if chunked { Body::ChunkSize } else { Body::UntilClose });
        }
        match self.fields.content_length().map_err(faulty)? {
            Some(length) => u32::try_from(length)
                .map(Body::of_length)
                .map_err(|_| faulty("its body is larger than 4 GiB; name a path with a small answer")),
            None => Ok(Body::UntilClose),
        }
    }

    /// The status line in quotes.
    pub(crate) fn status_line(&self) -> String {
        quote(self.line, 120)
    }

    /// The failure that an unwelcome answer is: the server's refusal where it says so, otherwise against the
    /// protocol, with a hint. `rest` is what has come behind the head; the start of its payload is quoted.
    pub(crate) fn unwelcome(&self, rest: &[u8], hint: &str) -> Failure {
        if matches!(self.code, 429 | 503) {
            return self.refusal(rest);
        }
        against_protocol(format!("the server answered {}; {hint}", self.words(rest)))
    }

    /// The failure that a refusal is, in the server's words.
    pub(crate) fn refusal(&self, rest: &[u8]) -> Failure {
        Failure::new(FailureKind::ServerRefused, format!("the server answered {}", self.words(rest)))
    }

    fn words(&self, rest: &[u8]) -> String {
        let payload = self.first_payload(rest).trim_ascii();
        if payload.is_empty() {
            self.status_line()
        } else {
            format!("{} and said {}", self.status_line(), quote(payload, 120))
        }
    }

    /// The first piece of payload in `rest`; empty if none has come.
    fn first_payload<'b>(&self, mut rest: &'b [u8]) -> &'b [u8] {
        let Ok(mut body) = self.body() else { return &[] };
        while let Ok(Some((n, payload))) = body.take(rest) {
            if !payload.is_empty() {
                return payload;
            }
            rest = &rest[n..];
        }
        &[]
    }
}

fn not_http(bytes: &[u8], error: httparse::Error) -> Failure {
    let hint = match bytes.first() {
        Some(0x15 | 0x16) => "; it looks like TLS: use the scheme with TLS (https, wss, sses)",
        _ => "",
    };
    against_protocol(format!("the server did not answer in HTTP/1.1 ({error}): {}{hint}", quote(bytes, 80)))
}

/// A GET for the target's path with the given further lines, up to but without the empty line at its end.
pub(crate) fn get(plan: &Plan, lines: &[&str]) -> Vec<u8> {
    request("GET", &plan.target.path, plan, lines)
}

/// The same with any method and path (RFC 9112, section 3).
pub(crate) fn request(method: &str, path: &str, plan: &Plan, lines: &[&str]) -> Vec<u8> {
    let target = &plan.target;
    let mut escaped = String::with_capacity(path.len());
    for byte in path.bytes() {
        // A URL as people write it may hold characters that a request line must not (RFC 3986, section 2).
        if byte.is_ascii_graphic() {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    let mut host = target.authority();
    if target.scheme.default_port() == Some(target.port)
        && let Some(at) = host.rfind(':')
    {
        host.truncate(at);
    }
    let (host, agent) = (format!("Host: {host}"), format!("User-Agent: {AGENT}"));
    let mut head = format!("{method} {escaped} HTTP/1.1\r\n");
    let given = |line: &str| {
        let name = line.split(':').next().unwrap_or_default();
        plan.headers.iter().any(|field| field.name.eq_ignore_ascii_case(name))
    };
    for line in [host.as_str(), &agent].iter().chain(lines).filter(|line| !given(line)) {
        head.push_str(line);
        head.push_str("\r\n");
    }
    for Metadata { name, value } in &plan.headers {
        head.push_str(&format!("{name}: {}\r\n", value.reveal()));
    }
    head.into_bytes()
}

#[cfg(test)]
mod tests {
    use model::Target;

    use super::*;

    fn body(wire: &str) -> Result<Body, Failure> {
        Head::read(wire.as_bytes()).unwrap().unwrap().body()
    }

    #[test]
    fn fields_that_are_given_come_beside_our_own_or_in_their_place() {
        let field = |text: &str| text.parse::<Metadata>().unwrap();
        let mut plan = Plan::to(Target::parse("http://h/a").unwrap());
        plan.headers = vec![field("Authorization=Bearer x"), field("host=shop.example"), field("accept=*")];
        let request = String::from_utf8(get(&plan, &["Accept: */*"])).unwrap();
        let agent = format!("User-Agent: {AGENT}");
        let lines: Vec<&str> = request.lines().collect();
        let given = ["authorization: Bearer x", "host: shop.example", "accept: *"];
        assert_eq!(lines, [&["GET /a HTTP/1.1", agent.as_str()][..], &given].concat());
    }

    #[test]
    fn where_a_body_ends() {
        let head = |code: u16, rest: &str| body(&format!("HTTP/1.1 {code} X\r\n{rest}\r\n"));
        assert_eq!(head(200, "content-LENGTH: 5\r\n"), Ok(Body::Left(5)));
        assert_eq!(head(200, "Content-Length: 5, 5\r\nContent-Length: 5\r\n"), Ok(Body::Left(5)));
        assert_eq!(head(200, "Content-Length: 0\r\n"), Ok(Body::Ended));
        assert_eq!(head(204, "Content-Length: 5\r\n"), Ok(Body::Ended));
        assert_eq!(head(304, "Content-Length: 5\r\n"), Ok(Body::Ended));
        assert_eq!(
            head(200, "Content-Length: 5\r\nTransfer-Encoding: gzip, Chunked\r\n"),
            Ok(Body::ChunkSize)
        );
        assert_eq!(head(200, "Transfer-Encoding: chunked, gzip\r\n"), Ok(Body::UntilClose));
        assert_eq!(head(200, ""), Ok(Body::UntilClose));
        for bad in ["5, 6", "+5", "-1", "", "5 5", "99999999999999999999", "4294967296"] {
            assert!(head(200, &format!("Content-Length: {bad}\r\n")).is_err(), "{bad}");
        }
        assert!(body("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").is_err());
    }

    #[test]
    fn refusals_quote_the_server() {
        let wire = b"HTTP/1.1 503 Busy\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nfull\r\n";
        let head = Head::read(wire).unwrap().unwrap();
        let failure = head.unwelcome(&wire[head.length..], "unused");
        assert_eq!(failure.kind, FailureKind::ServerRefused);
        assert_eq!(failure.text, r#"the server answered "HTTP/1.1 503 Busy" and said "full""#);
        let head = Head::read(b"\r\nHTTP/1.1 404 Not Found\r\n\r\n").unwrap().unwrap();
        let failure = head.unwelcome(b"", "look elsewhere");
        assert_eq!(failure.kind, FailureKind::Protocol);
        assert_eq!(failure.text, r#"the server answered "HTTP/1.1 404 Not Found"; look elsewhere"#);
    }

    #[test]
    fn what_is_no_head_says_so() {
        let says = |bytes: &[u8]| Head::read(bytes).err().unwrap().text;
        assert!(says(b"SSH-2.0-OpenSSH\r\n").contains("SSH-2.0"));
        assert!(says(b"\x15\x03\x01\x00\x02").contains("use the scheme with TLS"));
        let mut long = b"HTTP/1.1 200 OK\r\nX: ".to_vec();
        long.resize(MOST_HEAD, b'x');
        assert!(Head::read(&long).unwrap().is_none());
        long.resize(MOST_HEAD + 1, b'x');
        assert!(says(&long).contains("64 KiB"));
        long.extend_from_slice(b"\r\n\r\n");
        assert!(says(&long).contains("64 KiB"));
    }

    #[test]
    fn requests() {
        let written =
            |url: &str| String::from_utf8(get(&Plan::to(Target::parse(url).unwrap()), &["A: b"])).unwrap();
        assert_eq!(
            written("http://[::1]/é?q"),
            format!("GET /%C3%A9?q HTTP/1.1\r\nHost: [::1]\r\nUser-Agent: {AGENT}\r\nA: b\r\n")
        );
        assert!(written("https://x:80").contains("Host: x:80\r\n"));
        assert!(written("wss://x").contains("Host: x\r\n"));
    }
}
