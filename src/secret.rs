//! The form of a secret that identifies its bearer.
//!
//! Owns: creating a secret, reading one, and its digest, which is all that is stored of it. Never: knows
//! who may do what.

use std::fmt::{self, Write as _};
use std::fs::File;
use std::io::{self, Read as _};

use sha2::{Digest, Sha256};

/// The beginning of every secret, by which tools that look for leaked secrets find it.
const MARK: &str = "dw_";

/// The hexadecimal digits of its public part, and of its secret part: 256 bits.
const ID_DIGITS: usize = 12;
const KEY_DIGITS: usize = 64;

/// A secret: `dw_ID_KEY`, where `ID` is public and names it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    id: String,
    key: String,
}

impl Secret {
    /// A new secret.
    ///
    /// # Errors
    /// The kernel gives no random bytes.
    pub fn new() -> io::Result<Self> {
        let mut bytes = [0; (ID_DIGITS + KEY_DIGITS) / 2];
        File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        let (id, key) = bytes.split_at(ID_DIGITS / 2);
        Ok(Self {
            id: digits(id),
            key: digits(key),
        })
    }

    /// Reads a secret; `None` if the text is none.
    pub fn read(text: &str) -> Option<Self> {
        let (id, key) = text.trim().strip_prefix(MARK)?.split_once('_')?;
        let is = |text: &str, n| text.len() == n && text.bytes().all(|it| it.is_ascii_hexdigit());
        let fits = is(id, ID_DIGITS) && is(key, KEY_DIGITS);
        fits.then(|| Self {
            id: id.to_ascii_lowercase(),
            key: key.to_ascii_lowercase(),
        })
    }

    /// Its public part.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Its digest: with 256 random bits, a plain digest is enough to keep it from being guessed.
    pub fn digest(&self) -> String {
        digits(&Sha256::digest(self.key.as_bytes()))
    }

    /// True when this is its digest.
    pub fn has(&self, digest: &str) -> bool {
        same(&self.digest(), digest)
    }

    /// Another text that only a holder of the secret can know, for this purpose.
    pub fn derived(&self, purpose: &str) -> String {
        digits(&Sha256::digest(format!("{purpose}:{}", self.key)))
    }

    /// The whole secret, to be handed over.
    pub fn reveal(&self) -> String {
        format!("{MARK}{}_{}", self.id, self.key)
    }
}

/// Shows the secret without its secret part: nothing that is logged reveals it.
impl fmt::Debug for Secret {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{MARK}{}_…", self.id)
    }
}

/// True when two texts are the same. It takes the same time wherever they differ, so that nobody can find
/// out a text by trying its beginnings.
pub fn same(one: &str, other: &str) -> bool {
    let pairs = one.bytes().zip(other.bytes());
    let differs = pairs.fold(0, |differs, (a, b)| std::hint::black_box(differs | (a ^ b)));
    one.len() == other.len() && differs == 0
}

fn digits(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_read_as_it_was_revealed_and_shows_itself_nowhere_else() {
        let secret = Secret::new().unwrap();
        let text = secret.reveal();
        assert_eq!(text.len(), MARK.len() + ID_DIGITS + 1 + KEY_DIGITS);
        assert_eq!(Secret::read(&format!(" {text}\n")), Some(secret.clone()));
        assert_eq!(
            Secret::read(&text.to_uppercase().replace("DW_", MARK)),
            Some(secret.clone())
        );
        let shown = format!("{secret:?}");
        assert_eq!(shown, format!("dw_{}_…", secret.id()));
        let other = Secret::new().unwrap();
        assert_ne!(secret.digest(), other.digest());
        assert_ne!(secret.digest(), secret.derived(""));
        assert_eq!(secret.digest().len(), 64);
        assert!(secret.has(&secret.digest()) && !secret.has(&other.digest()));
        assert!(!secret.has(&secret.digest()[..63]) && !secret.has(""));
    }

    #[test]
    fn a_text_of_another_form_is_no_secret() {
        let text = Secret::new().unwrap().reveal();
        let cut = &text[..text.len() - 1];
        let wide = text.replacen("dw_", "dw_é", 1);
        for wrong in [
            "",
            "dw_",
            "dw__",
            cut,
            &format!("{text}0"),
            &text[3..],
            &wide,
        ] {
            assert_eq!(Secret::read(wrong), None, "{wrong}");
        }
    }
}
