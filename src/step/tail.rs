//! The end of a text that a program writes.
//!
//! Owns: keeping no more than the last bytes, and showing them from the beginning of a line. Never: knows what they mean.

use super::error::storable;

/// The last bytes of a text.
#[derive(Debug)]
pub struct Tail {
    pub(super) bytes: Vec<u8>,
    max: usize,
    cut: bool,
}

impl Tail {
    /// Keeps the last `max` bytes.
    pub fn new(max: usize) -> Self {
        Self {
            bytes: Vec::new(),
            max,
            cut: false,
        }
    }

    /// The same for a text whose beginning is not known.
    pub fn of_a_rest(self, is_rest: bool) -> Self {
        Self {
            cut: is_rest,
            ..self
        }
    }

    /// Takes further bytes.
    pub fn keep(&mut self, bytes: &[u8]) {
        let bytes = match bytes.len().checked_sub(self.max) {
            Some(excess @ 1..) => {
                self.cut = true;
                &bytes[excess..]
            }
            _ => bytes,
        };
        self.bytes.extend_from_slice(bytes);
        // Moved once per tail's length, so each byte is moved once.
        if self.bytes.len() > 2 * self.max {
            self.trim();
        }
    }

    fn trim(&mut self) {
        if let Some(excess @ 1..) = self.bytes.len().checked_sub(self.max) {
            self.bytes.drain(..excess);
            self.cut = true;
        }
    }

    /// The end as text; `None` when nothing was written.
    pub fn whole(&mut self) -> Option<String> {
        self.trim();
        self.last(self.max)
    }

    /// At most `max` bytes of the end.
    pub fn last(&self, max: usize) -> Option<String> {
        let excess = self.bytes.len().saturating_sub(max);
        let cut = self.cut || excess > 0;
        let mut kept = &self.bytes[excess..];
        if cut {
            // Half a line is worse than none, unless it is all there is.
            let whole = kept.iter().position(|byte| *byte == b'\n');
            kept = match whole {
                Some(end) if end + 1 < kept.len() => &kept[end + 1..],
                _ => kept,
            };
        }
        let text = String::from_utf8_lossy(kept);
        let text = text.trim_end();
        if text.is_empty() {
            return None;
        }
        let text = if cut {
            format!("…\n{text}")
        } else {
            text.to_owned()
        };
        Some(storable(text, usize::MAX))
    }
}
