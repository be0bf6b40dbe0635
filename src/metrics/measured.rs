//! The measurements that processes make of themselves.
//!
//! Owns: their stored form, in the row of a process's counts and beside these, and the series of the living.
//! Never: measures anything.
//!
//! They are of the moment at which a row was written: rows that are added up have none of them, and an older
//! version does not see them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{
    Metric, OTHER, PROCESS_CPU, PROCESS_FDS, PROCESS_MEMORY, PROCESSES_MAX, Reading, SLOTS,
};

/// The measurements of a process when it wrote its row. None: it was not measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Measured {
    /// Bytes of memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    /// Milliseconds on processors, since it began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_ms: Option<u64>,
    /// Open files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_fds: Option<u64>,
    /// A worker's slots.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots: Option<u64>,
    /// The slots that run a step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub busy: Option<u64>,
}

/// The place of the measurements in a row, beside the counts.
#[derive(Deserialize)]
struct Body {
    #[serde(rename = "m", default)]
    measured: Measured,
}

impl Measured {
    /// The measurements in a row; none if the row cannot be read.
    pub fn parse(body: &str) -> Self {
        serde_json::from_str(body).map_or_else(|_| Self::default(), |body: Body| body.measured)
    }
}

/// A living process, as its series name it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner {
    /// Its host.
    pub host: String,
    /// Its role.
    pub role: String,
    /// Its pipeline; empty where it has none.
    pub pipeline: String,
}

/// The measurements of the living, the oldest first.
#[derive(Debug, Default)]
pub struct Processes {
    met: usize,
    /// How many processes of each owner there were so far.
    slots: BTreeMap<Owner, usize>,
    sums: BTreeMap<(usize, Vec<String>), f64>,
}

/// In the order in which they are reported.
const TOLD: [&Metric; 4] = [&SLOTS, &PROCESS_MEMORY, &PROCESS_CPU, &PROCESS_FDS];

impl Processes {
    /// Takes note of the next process. Beyond a bound, processes have no series of their own.
    pub fn add(&mut self, owner: Owner, measured: Measured) {
        if let (Some(slots), Some(busy)) = (measured.slots, measured.busy) {
            let free = slots.saturating_sub(busy);
            for (state, n) in [("busy", busy), ("free", free)] {
                self.sum(0, [owner.pipeline.as_str(), state].into(), n as f64);
            }
        }
        let own = [
            measured.memory.map(|bytes| bytes as f64),
            measured.cpu_ms.map(|ms| ms as f64 / 1e3),
            measured.open_fds.map(|open| open as f64),
        ];
        if own.iter().all(Option::is_none) {
            return;
        }
        self.met += 1;
        let before = self.slots.entry(owner.clone()).or_default();
        let slot = before.to_string();
        *before += 1;
        let labels = match self.met <= PROCESSES_MAX {
            true => [&owner.host, &owner.role, &owner.pipeline, &slot].map(String::as_str),
            false => [OTHER, &owner.role, OTHER, OTHER],
        };
        for (place, value) in own.into_iter().enumerate() {
            if let Some(value) = value {
                self.sum(place + 1, labels.into(), value);
            }
        }
    }

    fn sum(&mut self, place: usize, labels: Vec<&str>, value: f64) {
        let labels = labels.into_iter().map(str::to_owned).collect();
        *self.sums.entry((place, labels)).or_default() += value;
    }

    /// All readings.
    pub fn readings(self) -> Vec<Reading> {
        let sums = self.sums.into_iter();
        let reading = |((place, labels), value): ((usize, Vec<String>), f64)| Reading {
            metric: TOLD[place],
            labels,
            value,
        };
        super::bounded(sums.map(reading).collect())
    }
}
