//! Places, in the form in which listeners get them.
//!
//! Owns: the text of a place, and the seal on its number. Never: knows whose place it is.
//!
//! Numbers count the changes of all pipelines. A listener that may see only some pipelines would learn from
//! them how much happens in the others. So no text shows a number openly, and no number is written the same
//! way twice. The seal is this console's: in another console, a place counts by its time, which is the time
//! of a reading.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::error::Unspecified;
use ring::rand::{SecureRandom, SystemRandom};

use super::feed::Place;

/// Writes and reads places.
pub struct Seal {
    key: Option<LessSafeKey>,
    random: SystemRandom,
}

impl Seal {
    /// A seal with a key of its own.
    pub fn new() -> Self {
        let random = SystemRandom::new();
        let mut bytes = [0; 32];
        let key = random.fill(&mut bytes);
        let key = key.and_then(|()| UnboundKey::new(&AES_256_GCM, &bytes));
        Self {
            // If the kernel gives no random bytes, places have no number.
            key: key.ok().map(LessSafeKey::new),
            random,
        }
    }

    /// The text of a place.
    pub fn write(&self, place: &Place) -> String {
        let Place { epoch, number, at } = place;
        let sealed = self.sealed(*number, epoch).unwrap_or_default();
        format!("{epoch}-{}-{at}", URL_SAFE_NO_PAD.encode(sealed))
    }

    fn sealed(&self, number: u64, epoch: &str) -> Result<Vec<u8>, Unspecified> {
        let key = self.key.as_ref().ok_or(Unspecified)?;
        let mut sealed = [0; NONCE_LEN];
        self.random.fill(&mut sealed)?;
        let nonce = Nonce::assume_unique_for_key(sealed);
        let mut number = number.to_be_bytes();
        let tag = key.seal_in_place_separate_tag(nonce, Aad::from(epoch), &mut number)?;
        Ok([&sealed[..], &number, tag.as_ref()].concat())
    }

    /// Reads a place. A number that was not sealed here becomes one that does not exist.
    pub fn read(&self, text: &str) -> Option<Place> {
        let (epoch, rest) = text.split_once('-')?;
        let (sealed, at) = rest.rsplit_once('-')?;
        let at: u64 = at.parse().ok()?;
        let sealed = URL_SAFE_NO_PAD.decode(sealed).ok();
        Some(Place {
            epoch: epoch.to_owned(),
            number: sealed.and_then(|it| self.opened(it, epoch)).unwrap_or(0),
            at: i64::try_from(at).ok()?,
        })
    }

    fn opened(&self, mut sealed: Vec<u8>, epoch: &str) -> Option<u64> {
        let (nonce, number) = sealed.split_at_mut_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let key = self.key.as_ref()?;
        let number = key.open_in_place(nonce, Aad::from(epoch), number).ok()?;
        Some(u64::from_be_bytes(<[u8; 8]>::try_from(&*number).ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position(number: u64) -> Place {
        Place {
            epoch: "e".to_owned(),
            number,
            at: 17,
        }
    }

    #[test]
    fn a_place_is_read_as_it_was_written_and_its_text_does_not_tell_its_number() {
        let seal = Seal::new();
        let texts: Vec<String> = (0..50).map(|_| seal.write(&position(1_234))).collect();
        assert!(
            texts
                .iter()
                .all(|it| seal.read(it) == Some(position(1_234)))
        );
        let lengths = [0, 9, 1_234, u64::MAX].map(|number| seal.write(&position(number)).len());
        assert_eq!(lengths, [texts[0].len(); 4]);
        let different: std::collections::BTreeSet<_> = texts.iter().collect();
        assert_eq!(
            different.len(),
            texts.len(),
            "whether it has grown is not told either"
        );
    }

    #[test]
    fn a_number_that_was_not_sealed_here_is_none() {
        let (seal, other) = (Seal::new(), Seal::new());
        let text = other.write(&position(1_234));
        assert_eq!(seal.read(&text), Some(position(0)));
        let of_other_epoch = seal.write(&position(1_234)).replacen('e', "f", 1);
        assert_eq!(seal.read(&of_other_epoch).map(|it| it.number), Some(0));
        for short in ["e-1-17", "e--17", "e-AAAA-17"] {
            assert_eq!(seal.read(short), Some(position(0)), "{short}");
        }
        for wrong in ["", "e", "e-1", "e-1-x", "e-1--", "e-1-99999999999999999999"] {
            assert_eq!(seal.read(wrong), None, "{wrong}");
        }
    }
}
