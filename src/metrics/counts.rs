//! Counts, and the sum of counts.
//!
//! Owns: their bounds, their stored form, and the part of a process's own counts that it still has to
//! write. Never: reads or writes a row.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::histogram::Histogram;
use super::measured::Measured;
use super::{Kind, Metric, OTHER, PIPELINES_MAX, STEPS_IN_ALL_MAX, STEPS_MAX, named};

/// The separator between the label values of a series. No name contains it.
const BETWEEN: char = '\u{1f}';

/// How many bytes of a label value are kept.
const LABEL_MAX: usize = 200;

/// Counters and histograms. They add up to the same in any order, as long as the bounds are not reached;
/// beyond the bounds, every sum over pipelines and steps is still the same.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Counts {
    /// By the name of the metric, then by the label values of the series. Names are texts, so that
    /// this version keeps the counts of a newer one.
    #[serde(rename = "c", default)]
    counters: BTreeMap<String, BTreeMap<String, u64>>,
    #[serde(rename = "h", default)]
    histograms: BTreeMap<String, BTreeMap<String, Histogram>>,
    /// The pipelines that have series of their own, and their steps.
    #[serde(skip)]
    names: BTreeMap<String, BTreeSet<String>>,
    /// The text in which a key is put together, to be looked up.
    #[serde(skip)]
    key: String,
}

/// Their origin makes no difference.
impl PartialEq for Counts {
    fn eq(&self, other: &Self) -> bool {
        self.counters == other.counters && self.histograms == other.histograms
    }
}

impl Counts {
    /// The counts of a row. A row that cannot be read counts nothing.
    pub fn parse(body: &str) -> Self {
        let stored: Self = serde_json::from_str(body).unwrap_or_default();
        let mut counts = Self::default();
        counts.merge(&stored);
        counts
    }

    /// The form in which they are stored.
    pub fn to_body(&self) -> String {
        serde_json::to_string(self).expect("texts and numbers are JSON")
    }

    /// Adds to a counter. Adding nothing makes the series, so that its first rise can be seen.
    pub fn add(&mut self, metric: &Metric, labels: &[&str], more: u64) {
        debug_assert_eq!(metric.kind, Kind::Counter);
        let key = self.key(metric, labels);
        let series = of_metric(&mut self.counters, metric.name);
        match series.get_mut(&key) {
            Some(count) => *count = count.saturating_add(more),
            None => {
                let admitted = self.admit(metric.labels, &key);
                let series = of_metric(&mut self.counters, metric.name);
                let count = series.entry(admitted).or_default();
                *count = count.saturating_add(more);
            }
        }
        self.key = key;
    }

    /// Takes note of a time.
    pub fn observe(&mut self, metric: &Metric, labels: &[&str], time: Duration) {
        debug_assert_eq!(metric.kind, Kind::Histogram);
        let key = self.key(metric, labels);
        let series = of_metric(&mut self.histograms, metric.name);
        match series.get_mut(&key) {
            Some(histogram) => histogram.observe(time),
            None => {
                let admitted = self.admit(metric.labels, &key);
                let series = of_metric(&mut self.histograms, metric.name);
                series.entry(admitted).or_default().observe(time);
            }
        }
        self.key = key;
    }

    /// Adds all of the other counts.
    pub fn merge(&mut self, other: &Self) {
        for (name, series) in &other.counters {
            for (key, more) in series {
                let key = self.admit_stored(name, key);
                let count = of_metric(&mut self.counters, name).entry(key).or_default();
                *count = count.saturating_add(*more);
            }
        }
        for (name, series) in &other.histograms {
            for (key, more) in series {
                let key = self.admit_stored(name, key);
                let series = of_metric(&mut self.histograms, name);
                series.entry(key).or_default().merge(more);
            }
        }
    }

    /// The counts that are in these and were not yet in earlier ones.
    pub fn since(&self, earlier: &Self) -> Self {
        let mut since = Self::default();
        since.merge(self);
        since.subtract(earlier);
        since
    }

    /// Subtracts all of the other counts.
    fn subtract(&mut self, other: &Self) {
        for (name, series) in &other.counters {
            for (key, less) in series {
                if let Some(count) = of_metric(&mut self.counters, name).get_mut(key) {
                    *count = count.saturating_sub(*less);
                }
            }
        }
        for (name, series) in &other.histograms {
            let own = of_metric(&mut self.histograms, name);
            for (key, less) in series {
                if let Some(histogram) = own.get_mut(key) {
                    histogram.subtract(less);
                }
            }
            own.retain(|_, histogram| !histogram.is_empty());
        }
    }

    /// True if no other counters than these have a count.
    fn is_only(&self, metrics: &[&Metric]) -> bool {
        let mut counters = self.counters.iter();
        let other = |(name, series): (&String, &BTreeMap<String, u64>)| {
            let is_one = metrics.iter().any(|metric| metric.name == name);
            !is_one && series.values().any(|count| *count > 0)
        };
        let mut histograms = self.histograms.values().flat_map(BTreeMap::values);
        !counters.any(other) && histograms.all(Histogram::is_empty)
    }

    /// The series of a counter: the values of the labels, and the count.
    pub fn counters(&self, metric: &Metric) -> impl Iterator<Item = (Vec<&str>, u64)> {
        let series = self.counters.get(metric.name).into_iter().flatten();
        series.filter_map(|(key, count)| Some((split(metric, key)?, *count)))
    }

    /// The series of a histogram.
    pub fn histograms(&self, metric: &Metric) -> impl Iterator<Item = (Vec<&str>, &Histogram)> {
        let series = self.histograms.get(metric.name).into_iter().flatten();
        series.filter_map(|(key, histogram)| Some((split(metric, key)?, histogram)))
    }

    /// The sum of those series of a counter whose labels of these names have these values; for tests.
    #[cfg(feature = "internals")]
    pub fn sum(&self, metric: &Metric, labels: &[(&str, &str)]) -> u64 {
        let matching = self.counters(metric).filter(|(values, _)| {
            labels.iter().all(|label| {
                let mut own = metric.labels.iter().zip(values);
                own.any(|(name, value)| (*name, *value) == *label)
            })
        });
        matching.map(|(_, count)| count).sum()
    }

    /// The key of these label values, as they come.
    fn key(&mut self, metric: &Metric, labels: &[&str]) -> String {
        debug_assert_eq!(metric.labels.len(), labels.len(), "{}", metric.name);
        let mut key = std::mem::take(&mut self.key);
        key.clear();
        for (at, label) in labels.iter().enumerate() {
            if at > 0 {
                key.push(BETWEEN);
            }
            let label = &label[..label.floor_char_boundary(LABEL_MAX)];
            match label.contains(BETWEEN) {
                true => key.extend(label.chars().filter(|char| *char != BETWEEN)),
                false => key.push_str(label),
            }
        }
        key
    }

    /// The same, with as many names of its own as there is room for. A metric of a newer version is taken
    /// unchanged.
    fn admit_stored(&mut self, name: &str, key: &str) -> String {
        match named(name) {
            Some(metric) => self.admit(metric.labels, key),
            None => key.to_owned(),
        }
    }

    fn admit(&mut self, labels: &[&str], key: &str) -> String {
        let place = |name: &str| labels.iter().position(|label| *label == name);
        let Some(pipeline) = place("pipeline") else {
            return key.to_owned();
        };
        let step = place("step");
        let mut values: Vec<&str> = key.split(BETWEEN).collect();
        if values.len() != labels.len() {
            return key.to_owned();
        }
        let named = values[pipeline];
        if named != OTHER && !self.names.contains_key(named) {
            match self.names.len() < PIPELINES_MAX {
                true => drop(self.names.insert(named.to_owned(), BTreeSet::new())),
                false => values[pipeline] = OTHER,
            }
        }
        if let Some(step) = step {
            let in_all: usize = self.names.values().map(BTreeSet::len).sum();
            let steps = self.names.get_mut(values[pipeline]);
            let has_room =
                |steps: &BTreeSet<String>| steps.len() < STEPS_MAX && in_all < STEPS_IN_ALL_MAX;
            match steps {
                Some(steps) if steps.contains(values[step]) => {}
                Some(steps) if values[step] != OTHER && has_room(steps) => {
                    steps.insert(values[step].to_owned());
                }
                _ => values[step] = OTHER,
            }
        }
        values.join(&BETWEEN.to_string())
    }
}

fn of_metric<'a, T>(
    all: &'a mut BTreeMap<String, BTreeMap<String, T>>,
    name: &str,
) -> &'a mut BTreeMap<String, T> {
    // Looked up first, so that a name is made into a text only once.
    if !all.contains_key(name) {
        all.insert(name.to_owned(), BTreeMap::new());
    }
    all.get_mut(name).expect("it was there, or has been made")
}

/// The label values of a series; `None` where a newer version has other labels.
fn split<'a>(metric: &Metric, key: &'a str) -> Option<Vec<&'a str>> {
    let values: Vec<&str> = match metric.labels.is_empty() {
        true => Vec::new(),
        false => key.split(BETWEEN).collect(),
    };
    (values.len() == metric.labels.len()).then_some(values)
}

/// The counts of one process, which keeps them in a row of its own.
#[derive(Debug, Default)]
pub struct Own {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    counts: Counts,
    measured: Measured,
    /// The row as it is, or may be.
    written: Option<String>,
}

/// The row of a living process.
#[derive(Serialize)]
struct Row<'a> {
    #[serde(flatten)]
    counts: &'a Counts,
    #[serde(rename = "m")]
    measured: Measured,
}

impl Own {
    fn state(&self) -> MutexGuard<'_, State> {
        // Counts that a panic left half done are as good as any.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds to the counts.
    pub fn count(&self, count: impl FnOnce(&mut Counts)) {
        count(&mut self.state().counts);
    }

    /// Takes note of what the process has measured of itself.
    pub fn measure(&self, measured: Measured) {
        self.state().measured = measured;
    }

    /// The row to write, if it is to change.
    pub fn to_write(&self) -> Option<String> {
        let state = self.state();
        let row = Row {
            counts: &state.counts,
            measured: state.measured,
        };
        let body = serde_json::to_string(&row).expect("texts and numbers are JSON");
        (state.written.as_ref() != Some(&body)).then_some(body)
    }

    /// True if nothing was counted since the row was written except these counters, which rise by themselves.
    pub fn is_quiet(&self, metrics: &[&Metric]) -> bool {
        let state = self.state();
        let written = state.written.as_deref().map(Counts::parse);
        written.is_some_and(|written| state.counts.since(&written).is_only(metrics))
    }

    /// Takes note of the row that was written, or may have been.
    pub fn written(&self, body: String) {
        self.state().written = Some(body);
    }

    /// From now on the process has another row: the counts that the old one has, or may have, are not
    /// counted again.
    pub fn begin_anew(&self) {
        let mut state = self.state();
        if let Some(written) = state.written.take() {
            let written = Counts::parse(&written);
            state.counts.subtract(&written);
        }
    }
}
