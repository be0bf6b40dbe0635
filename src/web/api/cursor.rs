//! The place where a page of a list ended, as the request for the next page gives it.
//!
//! Owns: its notation, which only this module reads, and which any other list refuses. Never: reads a list.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value as Json, json};
use uuid::Uuid;

use crate::model::{RunId, StepId};
use crate::store::steps::Place;

use super::given::Value;

/// The lists that have pages, each with a notation of its own.
#[derive(Clone, Copy, PartialEq, Eq)]
enum List {
    Runs = 1,
    Steps = 2,
    Actions = 3,
    Bulks = 4,
    Deliveries = 5,
    Reports = 6,
    Series = 7,
    Questions = 8,
}

fn written(list: List, parts: &[&[u8]]) -> String {
    let mut bytes = vec![list as u8];
    bytes.extend(parts.iter().copied().flatten());
    URL_SAFE_NO_PAD.encode(bytes)
}

fn read<const N: usize>(list: List, text: &str) -> Result<[u8; N], String> {
    let bytes = URL_SAFE_NO_PAD.decode(text).ok();
    let rest = bytes.and_then(|bytes| {
        let (first, rest) = bytes.split_first()?;
        (*first == list as u8).then(|| rest.try_into().ok())?
    });
    rest.ok_or_else(|| {
        "a value from the `Link` header of a page of this list is expected, as it stands there"
            .to_owned()
    })
}

/// The letters of base64, six bits each.
const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// The letters with these values, as a character class of a regular expression.
fn class(letters: impl Iterator<Item = usize>) -> String {
    let letters = letters.filter_map(|letter| LETTERS.get(letter));
    let letters: String = letters.map(|it| char::from(*it)).collect();
    // Anywhere but at the end, a hyphen would mean a range.
    match letters.contains('-') {
        _ if letters.len() == 1 => letters,
        true => format!("[{}-]", letters.replace('-', "")),
        false => format!("[{letters}]"),
    }
}

/// The schema of this list's notation, whose places have this many bytes. It matches exactly the values that
/// [`read`] takes, so a program that generates values from the description knows how they are treated.
fn schema(list: List, bytes: usize) -> Json {
    let (list, bits) = (usize::from(list as u8), (bytes + 1) * 8);
    let first = class(std::iter::once(list >> 2));
    let second = class((0..16).map(|low| (list & 3) << 4 | low));
    let unused = bits.next_multiple_of(6) - bits;
    let last = class((0..64).step_by(1 << unused));
    let between = bits.div_ceil(6) - 3;
    json!({ "type": "string", "pattern": format!("^{first}{second}[A-Za-z0-9_-]{{{between}}}{last}$") })
}

/// Actions that are older than this one.
pub struct AfterAction(pub Uuid);

impl AfterAction {
    /// Its form in an address.
    pub fn text(&self) -> String {
        written(List::Actions, &[self.0.as_bytes()])
    }
}

impl Value for AfterAction {
    fn read(text: &str) -> Result<Self, String> {
        Ok(Self(Uuid::from_bytes(read(List::Actions, text)?)))
    }

    fn schema() -> Json {
        schema(List::Actions, 16)
    }
}

/// Bulk actions that are older than this one.
pub struct AfterBulk(pub Uuid);

impl AfterBulk {
    /// Its form in an address.
    pub fn text(&self) -> String {
        written(List::Bulks, &[self.0.as_bytes()])
    }
}

impl Value for AfterBulk {
    fn read(text: &str) -> Result<Self, String> {
        Ok(Self(Uuid::from_bytes(read(List::Bulks, text)?)))
    }

    fn schema() -> Json {
        schema(List::Bulks, 16)
    }
}

/// Deliveries that are older than this one.
pub struct AfterDelivery(pub Uuid);

impl AfterDelivery {
    /// Its form in an address.
    pub fn text(&self) -> String {
        written(List::Deliveries, &[self.0.as_bytes()])
    }
}

impl Value for AfterDelivery {
    fn read(text: &str) -> Result<Self, String> {
        Ok(Self(Uuid::from_bytes(read(List::Deliveries, text)?)))
    }

    fn schema() -> Json {
        schema(List::Deliveries, 16)
    }
}

/// Reports that are older than this one.
pub struct AfterReport(pub Uuid);

impl AfterReport {
    /// Its form in an address.
    pub fn text(&self) -> String {
        written(List::Reports, &[self.0.as_bytes()])
    }
}

impl Value for AfterReport {
    fn read(text: &str) -> Result<Self, String> {
        Ok(Self(Uuid::from_bytes(read(List::Reports, text)?)))
    }

    fn schema() -> Json {
        schema(List::Reports, 16)
    }
}

/// Points that begin before this time, in µs since 1970.
pub struct AfterPoint(pub i64);

impl AfterPoint {
    /// Its form in an address.
    pub fn text(&self) -> String {
        written(List::Series, &[&self.0.to_be_bytes()])
    }
}

impl Value for AfterPoint {
    fn read(text: &str) -> Result<Self, String> {
        Ok(Self(i64::from_be_bytes(read(List::Series, text)?)))
    }

    fn schema() -> Json {
        schema(List::Series, 8)
    }
}

/// Runs that are older than this one.
pub struct AfterRun(pub RunId);

impl AfterRun {
    /// Its form in an address.
    pub fn text(&self) -> String {
        written(List::Runs, &[self.0.0.as_bytes()])
    }
}

impl Value for AfterRun {
    fn read(text: &str) -> Result<Self, String> {
        Ok(Self(RunId(Uuid::from_bytes(read(List::Runs, text)?))))
    }

    fn schema() -> Json {
        schema(List::Runs, 16)
    }
}

/// Steps of a run that follow this place.
pub struct AfterStep {
    /// The run.
    pub run: RunId,
    /// The place.
    pub place: Place,
}

impl AfterStep {
    /// Its form in an address.
    pub fn text(&self) -> String {
        let Place {
            fan_out,
            element,
            step,
        } = self.place;
        let (run, fan_out) = (self.run.0.as_bytes(), fan_out.as_bytes());
        let (element, step) = (element.to_be_bytes(), step.to_be_bytes());
        written(List::Steps, &[run, fan_out, &element, &step])
    }
}

impl Value for AfterStep {
    fn read(text: &str) -> Result<Self, String> {
        let bytes: [u8; 48] = read(List::Steps, text)?;
        let number = |at: usize| u128::from_be_bytes(std::array::from_fn(|n| bytes[at + n]));
        let ordinals = number(32);
        let place = Place {
            fan_out: Uuid::from_u128(number(16)),
            element: (ordinals >> 64) as i64,
            step: ordinals as i64,
        };
        let run = RunId(Uuid::from_u128(number(0)));
        Ok(Self { run, place })
    }

    fn schema() -> Json {
        schema(List::Steps, 48)
    }
}

/// Questions that follow this one.
pub struct AfterQuestion {
    /// The run that asks.
    pub run: RunId,
    /// The step that waits.
    pub step: StepId,
}

impl AfterQuestion {
    /// Its form in an address.
    pub fn text(&self) -> String {
        let (run, step) = (self.run.0.as_bytes(), self.step.0.as_bytes());
        written(List::Questions, &[run, step])
    }
}

impl Value for AfterQuestion {
    fn read(text: &str) -> Result<Self, String> {
        let bytes: [u8; 32] = read(List::Questions, text)?;
        let id = |at: usize| Uuid::from_bytes(std::array::from_fn(|n| bytes[at + n]));
        Ok(Self {
            run: RunId(id(0)),
            step: StepId(id(16)),
        })
    }

    fn schema() -> Json {
        schema(List::Questions, 32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_as_it_was_written_and_refused_on_another_list() {
        let run = RunId::new();
        let place = Place {
            fan_out: Uuid::now_v7(),
            element: 734_512,
            step: -1,
        };
        let (runs, steps) = (AfterRun(run).text(), AfterStep { run, place }.text());
        assert_eq!(AfterRun::read(&runs).map(|it| it.0), Ok(run));
        let read = AfterStep::read(&steps).map(|it| (it.run, it.place));
        assert_eq!(read, Ok((run, place)));
        assert!(AfterRun::read(&steps).is_err() && AfterStep::read(&runs).is_err());
        let question = AfterQuestion {
            run,
            step: StepId(Uuid::now_v7()),
        };
        let read = AfterQuestion::read(&question.text()).map(|it| (it.run, it.step));
        assert_eq!(read, Ok((run, question.step)));
        for wrong in ["", "x", "AQ", &runs[1..], &format!("{runs}A"), "ä"] {
            assert!(AfterRun::read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_pattern_of_a_list_has_the_letters_that_its_places_are_written_with() {
        let pattern = |schema: Json| schema["pattern"].as_str().unwrap().to_owned();
        assert_eq!(
            pattern(AfterRun::schema()),
            "^A[QRSTUVWXYZabcdef][A-Za-z0-9_-]{20}[AEIMQUYcgkosw048]$"
        );
        assert_eq!(
            pattern(AfterStep::schema()),
            "^A[ghijklmnopqrstuv][A-Za-z0-9_-]{63}[AQgw]$"
        );
        assert!(pattern(AfterAction::schema()).starts_with("^A[wxyz0123456789_-]["));
        let (least, most) = (AfterBulk(Uuid::nil()).text(), AfterBulk(Uuid::max()).text());
        assert_eq!(least, format!("BA{}A", "A".repeat(20)));
        assert_eq!(most, format!("BP{}8", "_".repeat(20)));
        assert!(pattern(AfterBulk::schema()).starts_with("^B[ABCDEFGHIJKLMNOP]["));
    }
}
