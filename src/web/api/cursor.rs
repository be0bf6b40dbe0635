//! The place where a page of a list ended, as the next page is asked for.
//!
//! Owns: its notation, which is nobody else's business and is refused on another list. Never: reads a list.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value as Json, json};
use uuid::Uuid;

use crate::model::RunId;
use crate::store::steps::Place;

use super::given::Value;

/// The lists that have pages, and notations of their own.
#[derive(Clone, Copy, PartialEq, Eq)]
enum List {
    Runs = 1,
    Steps = 2,
    Actions = 3,
    Bulks = 4,
    Deliveries = 5,
    Reports = 6,
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

fn schema() -> Json {
    json!({ "type": "string", "pattern": "^[A-Za-z0-9_-]+$" })
}

/// Interventions that are older than this one.
pub struct AfterAction(pub Uuid);

impl AfterAction {
    /// As it stands in an address.
    pub fn text(&self) -> String {
        written(List::Actions, &[self.0.as_bytes()])
    }
}

impl Value for AfterAction {
    fn read(text: &str) -> Result<Self, String> {
        Ok(Self(Uuid::from_bytes(read(List::Actions, text)?)))
    }

    fn schema() -> Json {
        schema()
    }
}

/// Bulk actions that are older than this one.
pub struct AfterBulk(pub Uuid);

impl AfterBulk {
    /// As it stands in an address.
    pub fn text(&self) -> String {
        written(List::Bulks, &[self.0.as_bytes()])
    }
}

impl Value for AfterBulk {
    fn read(text: &str) -> Result<Self, String> {
        Ok(Self(Uuid::from_bytes(read(List::Bulks, text)?)))
    }

    fn schema() -> Json {
        schema()
    }
}

/// Deliveries that are older than this one.
pub struct AfterDelivery(pub Uuid);

impl AfterDelivery {
    /// As it stands in an address.
    pub fn text(&self) -> String {
        written(List::Deliveries, &[self.0.as_bytes()])
    }
}

impl Value for AfterDelivery {
    fn read(text: &str) -> Result<Self, String> {
        Ok(Self(Uuid::from_bytes(read(List::Deliveries, text)?)))
    }

    fn schema() -> Json {
        schema()
    }
}

/// Reports that are older than this one.
pub struct AfterReport(pub Uuid);

impl AfterReport {
    /// As it stands in an address.
    pub fn text(&self) -> String {
        written(List::Reports, &[self.0.as_bytes()])
    }
}

impl Value for AfterReport {
    fn read(text: &str) -> Result<Self, String> {
        Ok(Self(Uuid::from_bytes(read(List::Reports, text)?)))
    }

    fn schema() -> Json {
        schema()
    }
}

/// Runs that are older than this one.
pub struct AfterRun(pub RunId);

impl AfterRun {
    /// As it stands in an address.
    pub fn text(&self) -> String {
        written(List::Runs, &[self.0.0.as_bytes()])
    }
}

impl Value for AfterRun {
    fn read(text: &str) -> Result<Self, String> {
        Ok(Self(RunId(Uuid::from_bytes(read(List::Runs, text)?))))
    }

    fn schema() -> Json {
        schema()
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
    /// As it stands in an address.
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
        schema()
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
        for wrong in ["", "x", "AQ", &runs[1..], &format!("{runs}A"), "ä"] {
            assert!(AfterRun::read(wrong).is_err(), "{wrong}");
        }
    }
}
