//! The secrets of a step, covered in its log.
//!
//! Owns: the search for them in a stream, whichever way it is cut. Never: knows where a secret
//! came from, or finds one in another form (in Base64, say).

use std::collections::HashMap;
use std::sync::Arc;

/// Written in a secret's place.
const COVER: &[u8] = b"***";

/// Shorter values are in every text, and are not covered.
const SHORTEST: usize = 4;

/// Longer ones are looked for in pieces of this many bytes, so that little is held back and a text that
/// almost is one costs little.
const PIECE: usize = 64;

/// More pieces than this cost too much at every byte.
const MOST: usize = 1024;

/// The secrets of one step, and the end of its log that may be the beginning of one.
#[derive(Clone, Debug)]
pub struct Mask {
    /// By their first bytes; of those with one first byte longer ones first.
    pieces: Arc<HashMap<u8, Vec<Vec<u8>>>>,
    held: Vec<u8>,
    /// Of the bytes that come next so many belong to a secret that has begun.
    ahead: usize,
    /// The byte before belonged to one.
    covering: bool,
}

/// There is more to be covered than can be.
#[derive(Debug, PartialEq, Eq)]
pub struct TooMuch;

impl Mask {
    /// Covers these values; `None` where there is nothing to cover. A log is read by lines, so each line of
    /// a value is covered.
    pub fn new(secrets: &[String]) -> Result<Option<Self>, TooMuch> {
        let mut pieces: Vec<Vec<u8>> = Vec::new();
        // Programs log their errors as JSON.
        let lines = secrets.iter().flat_map(|secret| secret.lines());
        let forms = lines.flat_map(|line| [line.trim().to_owned(), escaped(line.trim())]);
        for line in forms {
            let mut rest = line.as_bytes();
            while rest.len() > PIECE {
                // No piece is too short to be covered.
                let (piece, more) = rest.split_at(PIECE.min(rest.len() - SHORTEST));
                pieces.push(piece.to_owned());
                rest = more;
            }
            if rest.len() >= SHORTEST {
                pieces.push(rest.to_owned());
            }
        }
        pieces.sort_by(|one, other| other.len().cmp(&one.len()).then(one.cmp(other)));
        pieces.dedup();
        if pieces.len() > MOST {
            return Err(TooMuch);
        }
        let mut by_first: HashMap<u8, Vec<Vec<u8>>> = HashMap::new();
        for piece in pieces {
            by_first.entry(piece[0]).or_default().push(piece);
        }
        let mask = Self {
            pieces: Arc::new(by_first),
            held: Vec::new(),
            ahead: 0,
            covering: false,
        };
        Ok((!mask.pieces.is_empty()).then_some(mask))
    }

    /// A whole text, covered.
    pub fn text(&self, text: &str) -> String {
        let pieces = Arc::clone(&self.pieces);
        let mut mask = Self {
            pieces,
            held: Vec::new(),
            ahead: 0,
            covering: false,
        };
        // All of it is looked at, so no character is cut.
        String::from_utf8_lossy(&mask.covered(text.as_bytes(), true)).into_owned()
    }

    /// The next bytes of the log, covered. Those at the end that may begin a secret are held back.
    pub fn cover(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.covered(bytes, false)
    }

    /// The bytes that were held back: nothing follows.
    pub fn finish(&mut self) -> Vec<u8> {
        self.covered(&[], true)
    }

    fn covered(&mut self, bytes: &[u8], last: bool) -> Vec<u8> {
        let mut text = std::mem::take(&mut self.held);
        text.extend_from_slice(bytes);
        let mut out = Vec::with_capacity(text.len());
        for (at, byte) in text.iter().enumerate() {
            if let Some(pieces) = self.pieces.get(byte) {
                let rest = &text[at..];
                let goes_on = |piece: &Vec<u8>| piece.len() > rest.len() && piece.starts_with(rest);
                if !last && pieces.iter().any(goes_on) {
                    self.held = rest.to_owned();
                    break;
                }
                // One may begin inside of another.
                if let Some(piece) = pieces.iter().find(|piece| rest.starts_with(piece)) {
                    self.ahead = self.ahead.max(piece.len());
                }
            }
            if self.ahead == 0 {
                self.covering = false;
                out.push(*byte);
                continue;
            }
            // The pieces of one secret have one cover.
            if !std::mem::replace(&mut self.covering, true) {
                out.extend_from_slice(COVER);
            }
            self.ahead -= 1;
        }
        out
    }
}

/// The text between the quotation marks of a JSON string.
fn escaped(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn covered(secrets: &[&str], pieces: &[&str]) -> String {
        let secrets: Vec<String> = secrets.iter().map(|secret| (*secret).to_owned()).collect();
        let mut mask = Mask::new(&secrets).unwrap().unwrap();
        let mut out = Vec::new();
        for piece in pieces {
            out.extend(mask.cover(piece.as_bytes()));
            assert!(mask.held.len() < PIECE, "{}", mask.held.len());
        }
        out.extend(mask.finish());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_secret_is_covered_wherever_the_stream_is_cut() {
        let text = "key=s3cr3t-key; s3cr3t-kex s3cr3t-keys3cr3t-key s3c";
        let expected = "key=***; s3cr3t-kex *** s3c";
        for at in 0..text.len() {
            let (one, other) = text.split_at(at);
            assert_eq!(covered(&["s3cr3t-key"], &[one, other]), expected, "{at}");
        }
        let bytes: Vec<String> = text.chars().map(String::from).collect();
        let bytes: Vec<&str> = bytes.iter().map(String::as_str).collect();
        assert_eq!(covered(&["s3cr3t-key"], &bytes), expected);
    }

    #[test]
    fn a_long_secret_has_one_cover_and_nothing_of_it_is_left() {
        for length in [63, 64, 65, 66, 67, 68, 69, 127, 128, 129, 1_000] {
            let secret: String = ('a'..='z').cycle().take(length).collect();
            let text = format!("<{secret}>");
            assert_eq!(covered(&[&secret], &[&text]), "<***>", "{length}");
        }
        // One that begins another is not mistaken for it.
        assert_eq!(
            covered(&["abcd", "abcdefgh"], &["abcd", "efgh abcd"]),
            "*** ***"
        );
    }

    #[test]
    fn secrets_that_overlap_are_covered_to_the_end_of_the_last() {
        let secrets = ["abcd1234", "34567890key"];
        assert_eq!(covered(&secrets, &["<abcd1234567890key>"]), "<***>");
        assert_eq!(covered(&secrets, &["<abcd12", "34567", "890key>"]), "<***>");
        assert_eq!(
            covered(&secrets, &["<abcd1234567890kez>"]),
            "<***567890kez>"
        );
    }

    #[test]
    fn a_secret_in_a_json_string_is_covered() {
        let text = r#"{"token":"ab\"c\\d"}"#;
        assert_eq!(covered(&[r#"ab"c\d"#], &[text]), r#"{"token":"***"}"#);
    }

    #[test]
    fn a_whole_text_is_covered_beside_the_stream() {
        let mut mask = Mask::new(&["s3cr3t".into()]).unwrap().unwrap();
        assert_eq!(mask.cover(b"s3c"), b"");
        assert_eq!(mask.text("Grüße s3cr3t, s3c"), "Grüße ***, s3c");
        assert_eq!(mask.cover(b"r3t"), b"***");
    }

    #[test]
    fn each_line_of_a_secret_is_covered() {
        let key = "-----BEGIN KEY-----\nMIIEvQIBADANBg\r\nkqhkiG9w0BAQ\n-----END KEY-----\n";
        let text = "one\nMIIEvQIBADANBg\nkqhkiG9w0BAQ\ntwo\n";
        assert_eq!(covered(&[key], &[text]), "one\n***\n***\ntwo\n");
    }

    #[test]
    fn what_is_in_every_text_is_not_covered_and_too_much_is_refused() {
        assert!(Mask::new(&["yes".into(), String::new()]).unwrap().is_none());
        let lines: String = (0..=MOST).map(|line| format!("line {line}\n")).collect();
        assert_eq!(Mask::new(&[lines]).unwrap_err(), TooMuch);
    }

    #[test]
    fn a_text_that_almost_is_a_secret_costs_little() {
        let secret = format!("{}b", "a".repeat(10_000));
        let mut mask = Mask::new(&[secret]).unwrap().unwrap();
        let began = std::time::Instant::now();
        for _ in 0..100 {
            mask.cover(&[b'a'; 4_096]);
        }
        assert!(began.elapsed().as_secs() < 2, "{:?}", began.elapsed());
    }
}
