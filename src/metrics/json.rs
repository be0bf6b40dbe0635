//! Metrics as JSON values, for programs that do not read Prometheus's text.
//!
//! Owns: the form. Never: chooses which metrics there are.

use serde::Serialize;
use serde_json::{Map, Value};

use super::{BOUNDS, Counts, Histogram, Kind, METRICS, Metric, Reading};

/// A metric with its series.
#[derive(Debug, Serialize)]
pub struct MetricJson {
    /// Its name in the text format.
    pub name: String,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    /// One sentence.
    pub help: &'static str,
    /// One for each combination of labels.
    pub series: Vec<SeriesJson>,
}

/// A series: a value, or how many observations there were, their sum and how many were no greater than each bound.
#[derive(Debug, Serialize)]
pub struct SeriesJson {
    /// The values of its labels, by their names.
    pub labels: Map<String, Value>,
    /// The value of a counter or a gauge.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
    /// The observations of a histogram.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub observed: Option<Observed>,
}

/// The observations of a histogram, in seconds.
#[derive(Debug, Serialize)]
pub struct Observed {
    /// How many.
    pub count: u64,
    /// Their sum.
    pub sum: f64,
    /// The bounds, and how many were no greater than each.
    pub buckets: Vec<(f64, u64)>,
}

/// Counts and readings. A metric without series is left out.
pub fn values(counts: &Counts, readings: &[Reading]) -> Vec<MetricJson> {
    let metrics = METRICS.iter().map(|metric| MetricJson {
        name: metric.full_name(),
        kind: metric.kind.as_str(),
        help: metric.help,
        series: series(metric, counts, readings),
    });
    metrics.filter(|metric| !metric.series.is_empty()).collect()
}

fn series(metric: &Metric, counts: &Counts, readings: &[Reading]) -> Vec<SeriesJson> {
    let value = |labels: &[&str], value: Value| SeriesJson {
        labels: named(metric, labels),
        value: Some(value),
        observed: None,
    };
    let read = readings.iter().filter(|reading| reading.metric == metric);
    let read = read.map(|reading| {
        let labels: Vec<&str> = reading.labels.iter().map(String::as_str).collect();
        value(&labels, number(reading.value))
    });
    match metric.kind {
        Kind::Counter => {
            let counted = counts.counters(metric);
            let counted = counted.map(|(labels, count)| value(&labels, count.into()));
            counted.chain(read).collect()
        }
        Kind::Histogram => {
            let observed = counts.histograms(metric);
            let observed = observed.map(|(labels, histogram)| SeriesJson {
                labels: named(metric, &labels),
                value: None,
                observed: Some(Observed::of(histogram)),
            });
            observed.collect()
        }
        Kind::Gauge => read.collect(),
    }
}

/// A number without a fraction if it is whole: most readings are counts.
fn number(value: f64) -> Value {
    match value.fract() == 0.0 && value.abs() < 2f64.powi(53) {
        true => Value::from(value as i64),
        false => Value::from(value),
    }
}

fn named(metric: &Metric, labels: &[&str]) -> Map<String, Value> {
    let named = metric.labels.iter().zip(labels);
    named
        .map(|(name, value)| ((*name).to_owned(), Value::from(*value)))
        .collect()
}

impl Observed {
    fn of(histogram: &Histogram) -> Self {
        let within = |bound: i16| (2f64.powi(bound.into()), histogram.within(bound));
        Self {
            count: histogram.count(),
            sum: histogram.seconds(),
            buckets: BOUNDS.map(within).to_vec(),
        }
    }
}
