//! How does a client prove that it knows a password without saying it? SCRAM-SHA-256, the client's side
//! (RFC 5802 and RFC 7677), without channel binding.
//!
//! Nothing is kept of an exchange but the signature that the server owes: the nonce is made again when it is needed.

use std::cell::RefCell;
use std::hash::{BuildHasher as _, RandomState};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::{Digest as _, Sha256};

/// The name by which servers offer it.
pub(crate) const MECHANISM: &str = "SCRAM-SHA-256";
/// Says that this client knows no channel binding.
const HEADER: &str = "n,,";
/// The same, as it is repeated in the last message.
const HEADER_AGAIN: &str = "c=biws";
/// Servers choose how costly a password is to try. Beyond this, one would rather hold the client up.
const MOST_ITERATIONS: u32 = 100_000;

/// A SHA-256 digest, or a code made with it.
pub(crate) type Hash = [u8; 32];

/// One user with one password.
#[derive(Debug)]
pub(crate) struct Scram {
    user: String,
    password: String,
    /// A server that keeps one salt for a user makes them the same for all connections; they are costly to make, so
    /// the last ones are kept, as RFC 5802, section 5.1, allows.
    keys: RefCell<Option<Keys>>,
}

/// What a password comes to with a salt.
#[derive(Clone)]
struct Keys {
    salt: Vec<u8>,
    iterations: u32,
    client: Hash,
    server: Hash,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keys").field("iterations", &self.iterations).finish_non_exhaustive()
    }
}

impl Scram {
    /// `user` may be empty where the protocol has said it already.
    pub(crate) fn new(user: &str, password: &str) -> Self {
        let user = user.replace('=', "=3D").replace(',', "=2C");
        // What SASLprep (RFC 4013) does not allow, PostgreSQL takes as it is, and so do we; MongoDB has no such password.
        let password =
            stringprep::saslprep(password).map_or_else(|_| password.to_owned(), std::borrow::Cow::into_owned);
        Self { user, password, keys: RefCell::default() }
    }

    /// The first message, with a nonce that nobody can guess.
    pub(crate) fn first(&self, nonce: &str) -> String {
        format!("{HEADER}{}", self.bare(nonce))
    }

    fn bare(&self, nonce: &str) -> String {
        format!("n={},r={nonce}", self.user)
    }

    /// The last message, which answers the server's first, and the signature that the server must answer with.
    ///
    /// # Errors
    /// Completes "the server's first message …".
    pub(crate) fn last(&self, nonce: &str, theirs: &[u8]) -> Result<(String, Hash), &'static str> {
        let theirs = std::str::from_utf8(theirs).map_err(|_| "is no text")?;
        let mut fields = theirs.split(',');
        let mut field = |name: &str| fields.next().and_then(|field| field.strip_prefix(name));
        let both = field("r=").ok_or("has no nonce")?;
        let salt = field("s=").and_then(|salt| STANDARD.decode(salt).ok()).ok_or("has no salt")?;
        let iterations: u32 = field("i=").and_then(|n| n.parse().ok()).ok_or("has no iterations")?;
        if both.len() <= nonce.len() || !both.starts_with(nonce) {
            return Err("does not continue our nonce");
        }
        if !(1..=MOST_ITERATIONS).contains(&iterations) {
            return Err("asks for no sensible number of iterations");
        }
        let keys = self.keys(&salt, iterations);
        let mut last = format!("{HEADER_AGAIN},r={both}");
        let said = format!("{},{theirs},{last}", self.bare(nonce));
        let mut proof = keys.client;
        let signature = code(&Sha256::digest(keys.client), said.as_bytes());
        proof.iter_mut().zip(signature).for_each(|(byte, other)| *byte ^= other);
        last.push_str(",p=");
        STANDARD.encode_string(proof, &mut last);
        Ok((last, code(&keys.server, said.as_bytes())))
    }

    fn keys(&self, salt: &[u8], iterations: u32) -> Keys {
        let mut kept = self.keys.borrow_mut();
        match &*kept {
            Some(keys) if keys.salt == salt && keys.iterations == iterations => keys.clone(),
            _ => {
                let salted: Hash =
                    pbkdf2::pbkdf2_hmac_array::<Sha256, 32>(self.password.as_bytes(), salt, iterations);
                let (client, server) = (code(&salted, b"Client Key"), code(&salted, b"Server Key"));
                kept.insert(Keys { salt: salt.to_vec(), iterations, client, server }).clone()
            }
        }
    }
}

/// What one driver's nonces are made from. Nobody else knows it.
#[derive(Debug)]
pub(crate) struct Secret([u8; 16]);

impl Secret {
    /// One that nobody can guess.
    pub(crate) fn new() -> Self {
        let random = RandomState::new();
        let mut secret = [0; 16];
        secret[..8].copy_from_slice(&random.hash_one(0).to_ne_bytes());
        secret[8..].copy_from_slice(&random.hash_one(1).to_ne_bytes());
        Self(secret)
    }

    /// One that is known: the same nonces come again.
    pub(crate) const fn known() -> Self {
        Self([0; 16])
    }

    /// The nonce of the connection with that number: what nobody else can guess, the same each time.
    pub(crate) fn nonce(&self, number: u32) -> String {
        code(&self.0, &number.to_be_bytes())[..16].iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Whether the server's last message has the signature that only who knows the password's keys can make.
pub(crate) fn is_signed(theirs: &[u8], signature: &Hash) -> bool {
    let mut fields = theirs.split(|byte| *byte == b',');
    fields.next() == Some(format!("v={}", STANDARD.encode(signature)).as_bytes())
}

/// HMAC-SHA-256.
pub(crate) fn code(key: &[u8], message: &[u8]) -> Hash {
    // A key longer than a block is hashed, so that every length will do.
    let mut block = [0; 64];
    if key.len() > block.len() {
        block[..32].copy_from_slice(&Sha256::digest(key));
    } else {
        block[..key.len()].copy_from_slice(key);
    }
    let mut hmac = Hmac::<Sha256>::new(&block.into());
    hmac.update(message);
    hmac.finalize().into_bytes().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONCE: &str = "rOprNGfwEbeRWgbNEkqO";
    const THEIRS: &str =
        "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";

    #[test]
    fn the_exchange_of_rfc_7677() {
        let scram = Scram::new("user", "pencil");
        assert_eq!(scram.first(NONCE), "n,,n=user,r=rOprNGfwEbeRWgbNEkqO");
        for _ in 0..2 {
            let (last, signature) = scram.last(NONCE, THEIRS.as_bytes()).unwrap();
            assert_eq!(
                last,
                "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                 p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
            );
            assert!(is_signed(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=", &signature));
            assert!(!is_signed(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G5=", &signature));
            assert!(!is_signed(b"e=invalid-proof", &signature));
        }
    }

    #[test]
    fn a_first_message_that_cannot_be_right() {
        let scram = Scram::new("a=,b", "p");
        assert_eq!(scram.first("x"), "n,,n=a=3D=2Cb,r=x");
        for (theirs, why) in [
            (&b"\xff"[..], "no text"),
            (b"m=ext,r=xy,s=YQ==,i=1", "no nonce"),
            (b"r=xy,s=***,i=1", "no salt"),
            (b"r=xy,s=YQ==", "no iterations"),
            (b"r=x,s=YQ==,i=1", "our nonce"),
            (b"r=yx,s=YQ==,i=1", "our nonce"),
            (b"r=xy,s=YQ==,i=0", "sensible"),
            (b"r=xy,s=YQ==,i=100001", "sensible"),
        ] {
            let said = scram.last("x", theirs).unwrap_err();
            assert!(said.contains(why), "{said}");
        }
        assert!(scram.last("x", b"r=xy,s=YQ==,i=1,ext=1").is_ok());
    }

    #[test]
    fn codes_of_rfc_4231() {
        let hex = |hash: Hash| hash.iter().map(|b| format!("{b:02x}")).collect::<String>();
        assert!(
            hex(code(b"Jefe", b"what do ya want for nothing?"))
                .starts_with("5bdcc146bf60754e6a042426089575c7")
        );
        let long = code(&[0xaa; 131], b"Test Using Larger Than Block-Size Key - Hash Key First");
        assert!(hex(long).starts_with("60e431591ee0b67f0d8a26aacbf5b77f"));
    }
}
