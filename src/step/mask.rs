//! The secrets of a step, covered in its log.
//!
//! Owns: the search for them in a stream, whichever way it is cut. Never: knows where a secret
//! came from, or finds one in another form than that of a quoted text (in Base64, say).

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use anstream::adapter::strip_str;

use super::quoted;

/// Written in place of a secret.
const COVER: &[u8] = b"***";

/// Shorter values occur in every text, and are not covered.
const SHORTEST: usize = 4;

/// Longer secrets are looked for in pieces of this many bytes, so that little is held back and a text
/// that is almost a secret costs little.
const PIECE: usize = 64;

/// More pieces than this cost too much at every byte; other forms of the same secret do not count.
const MOST: usize = 1024;

/// The secrets of one step, and the end of its log that may be the beginning of one.
#[derive(Clone, Debug)]
pub struct Mask {
    /// By their first bytes; of those with the same first byte, longer ones come first.
    pieces: Arc<HashMap<u8, Vec<Vec<u8>>>>,
    held: Vec<u8>,
    /// How many of the next bytes belong to a secret that has begun.
    ahead: usize,
    /// The previous byte belonged to a secret.
    covering: bool,
}

/// There is more to cover than can be covered.
#[derive(Debug, PartialEq, Eq)]
pub struct TooMuch;

impl Mask {
    /// Covers these values; `None` where there is nothing to cover. A log is read by lines, so each line of
    /// a value is covered.
    pub fn new(secrets: &[String]) -> Result<Option<Self>, TooMuch> {
        let lines = secrets.iter().flat_map(|secret| secret.lines());
        let lines: BTreeSet<&str> = lines.map(str::trim).collect();
        let as_they_are: BTreeSet<Vec<u8>> =
            lines.iter().flat_map(|line| cut(line.as_bytes())).collect();
        if as_they_are.len() > MOST {
            return Err(TooMuch);
        }
        let forms = lines.iter().flat_map(|line| quoted::forms(line));
        let mut pieces = as_they_are;
        pieces.extend(forms.flat_map(|form| cut(form.as_bytes())));
        let mut pieces: Vec<Vec<u8>> = pieces.into_iter().collect();
        pieces.sort_by_key(|piece| std::cmp::Reverse(piece.len()));
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

    /// The same mask, at the beginning of a text.
    pub fn afresh(&self) -> Self {
        Self {
            pieces: Arc::clone(&self.pieces),
            held: Vec::new(),
            ahead: 0,
            covering: false,
        }
    }

    /// A whole text, covered. If a colour within a secret has kept the secret from being found, the text loses its colours.
    pub fn text(&self, text: &str) -> String {
        let covered = self.plain(text);
        if !covered.contains('\x1b') {
            return covered;
        }
        let without = strip_str(&covered).to_string();
        match self.plain(&without) {
            again if again == without => covered,
            again => again,
        }
    }

    fn plain(&self, text: &str) -> String {
        // All of it is looked at, so no character is cut.
        String::from_utf8_lossy(&self.afresh().covered(text.as_bytes(), true)).into_owned()
    }

    /// The beginning of these bytes, covered: more than `enough` bytes, unless that is all.
    pub fn beginning(&self, bytes: &[u8], enough: usize) -> Vec<u8> {
        let mut mask = self.afresh();
        let mut out = Vec::new();
        for chunk in bytes.chunks(enough.max(1)) {
            out.extend(mask.cover(chunk));
            if out.len() > enough {
                return out;
            }
        }
        out.extend(mask.finish());
        out
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
                // A secret may begin inside another.
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

/// The pieces in which a value is looked for.
fn cut(value: &[u8]) -> Vec<Vec<u8>> {
    let mut pieces = Vec::new();
    let mut rest = value;
    while rest.len() > PIECE {
        // No piece is too short to be covered.
        let (piece, more) = rest.split_at(PIECE.min(rest.len() - SHORTEST));
        pieces.push(piece.to_owned());
        rest = more;
    }
    if rest.len() >= SHORTEST {
        pieces.push(rest.to_owned());
    }
    pieces
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
    fn a_text_keeps_its_colours_unless_one_hides_a_secret() {
        let mask = Mask::new(&["s3cr3t-key".into()]).unwrap().unwrap();
        let coloured = "\x1b[31mno\x1b[0m key s3cr3t-key";
        assert_eq!(mask.text(coloured), "\x1b[31mno\x1b[0m key ***");
        let within = "\x1b[31mno\x1b[0m key s3\x1b[1mcr3t\x1b[0m-key";
        assert_eq!(mask.text(within), "no key ***");
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
        // A secret that begins another is not mistaken for it.
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
    fn a_secret_is_covered_as_programs_quote_it() {
        let secret = r#"pä/s\w"ö€r😀d'"#;
        let escape = |text: &str| text.replace('\\', r"\\");
        let json = r#"pä/s\\w\"ö€r😀d'"#;
        for form in [
            secret,
            json,
            &json.replace('/', r"\/"),
            r#"p\u00e4/s\\w\"\u00f6\u20acr\ud83d\ude00d'"#,
            r#"p\u00E4/s\\w\"\u00F6\u20ACr\uD83D\uDE00d'"#,
            r#"p\u00e4\/s\\w\"\u00f6\u20acr\ud83d\ude00d'"#,
            // As Python's repr, ascii, and repr of bytes.
            &escape(secret).replace('\'', r"\'"),
            r#"p\xe4/s\\w"\xf6\u20acr\U0001f600d\'"#,
            r#"p\xc3\xa4/s\\w"\xc3\xb6\xe2\x82\xacr\xf0\x9f\x98\x80d\'"#,
        ] {
            let text = format!("<{form}>");
            assert_eq!(covered(&[secret], &[&text]), "<***>", "{form}");
        }
        // With one kind of quotation mark Python chooses the other one.
        assert_eq!(covered(&[r"it's\1"], &[r#"["it's\\1"]"#]), r#"["***"]"#);
        assert_eq!(covered(&["tab\there"], &[r"tab\there"]), "***");
    }

    #[test]
    fn the_beginning_of_a_text_has_no_beginning_of_a_secret() {
        let mask = Mask::new(&["s3cr3t-key".into()]).unwrap().unwrap();
        for before in 0..40 {
            let text = format!("{}s3cr3t-key and much more of it", "x".repeat(before));
            let begins = mask.beginning(text.as_bytes(), 20);
            let begins = String::from_utf8(begins).unwrap();
            assert!(!begins.contains("s3c"), "{begins}");
            assert!(begins.len() > 20, "{begins}");
        }
        assert_eq!(mask.beginning(b"s3cr", 20), b"s3cr");
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
