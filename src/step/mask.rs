//! The secrets of a step, covered in its log.
//!
//! Owns: the search for them in a stream, whichever way it is cut. Never: knows where a secret
//! came from, or finds one in another form (in Base64, say).

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
#[derive(Debug)]
pub struct Mask {
    /// Longer ones first.
    pieces: Vec<Vec<u8>>,
    begins: [bool; 256],
    held: Vec<u8>,
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
        for line in secrets.iter().flat_map(|secret| secret.lines()) {
            let mut rest = line.trim().as_bytes();
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
        let mut begins = [false; 256];
        for piece in &pieces {
            begins[usize::from(piece[0])] = true;
        }
        let mask = Self {
            pieces,
            begins,
            held: Vec::new(),
            covering: false,
        };
        Ok((!mask.pieces.is_empty()).then_some(mask))
    }

    /// The next bytes of the log, covered. Those at the end that may begin a secret are held back.
    pub fn cover(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.covered(bytes, false)
    }

    /// The bytes that were held back: nothing follows.
    pub fn finish(&mut self) -> Vec<u8> {
        self.covered(&[], true)
    }

    fn longest(&self) -> usize {
        self.pieces.first().map_or(0, Vec::len)
    }

    fn covered(&mut self, bytes: &[u8], last: bool) -> Vec<u8> {
        let mut text = std::mem::take(&mut self.held);
        text.extend_from_slice(bytes);
        let mut out = Vec::with_capacity(text.len());
        let mut rest = &text[..];
        while let Some(first) = rest.first() {
            if !self.begins[usize::from(*first)] {
                self.covering = false;
                out.push(*first);
                rest = &rest[1..];
                continue;
            }
            let begun = |piece: &&Vec<u8>| piece.len() > rest.len() && piece.starts_with(rest);
            let may_go_on = !last && rest.len() < self.longest();
            if may_go_on && self.pieces.iter().any(|piece| begun(&piece)) {
                self.held = rest.to_owned();
                break;
            }
            match self.pieces.iter().find(|piece| rest.starts_with(piece)) {
                Some(piece) => {
                    // The pieces of one secret have one cover.
                    if !self.covering {
                        out.extend_from_slice(COVER);
                    }
                    self.covering = true;
                    rest = &rest[piece.len()..];
                }
                None => {
                    self.covering = false;
                    out.push(*first);
                    rest = &rest[1..];
                }
            }
        }
        out
    }
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
