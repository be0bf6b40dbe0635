//! Metrics as text, in the two formats that Prometheus reads.
//!
//! Owns: both formats, to the letter. Never: chooses which metrics there are.

use std::fmt::Write as _;

use super::{BOUNDS, Counts, Histogram, Kind, METRICS, Metric, PREFIX, Reading};

/// A text format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Prometheus's own, 0.0.4.
    Text,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

impl Format {
    /// Its media type.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// Counts and readings as text. A metric without series is left out.
pub fn render(counts: &Counts, readings: &[Reading], format: Format) -> String {
    let mut text = String::new();
    for metric in METRICS {
        let begin = text.len();
        head(&mut text, metric, format);
        let empty = text.len();
        match metric.kind {
            Kind::Counter => {
                for (labels, count) in counts.counters(metric) {
                    sample(
                        &mut text,
                        metric,
                        "_total",
                        &labels,
                        None,
                        &count.to_string(),
                    );
                }
                read(&mut text, metric, "_total", readings);
            }
            Kind::Histogram => {
                for (labels, histogram) in counts.histograms(metric) {
                    self::histogram(&mut text, metric, &labels, histogram, format);
                }
            }
            Kind::Gauge => read(&mut text, metric, "", readings),
        }
        if text.len() == empty {
            text.truncate(begin);
        }
    }
    if format == Format::OpenMetrics {
        text.push_str("# EOF\n");
    }
    text
}

fn head(text: &mut String, metric: &Metric, format: Format) {
    let name = match format {
        Format::Text => metric.full_name(),
        // The sample has the ending, and not the metric.
        Format::OpenMetrics => format!("{PREFIX}{}", metric.name),
    };
    let (help, kind) = (metric.help, metric.kind.as_str());
    // Writing to a string cannot fail.
    let _ = writeln!(text, "# HELP {name} {help}.\n# TYPE {name} {kind}");
}

fn read(text: &mut String, metric: &Metric, ending: &str, readings: &[Reading]) {
    for reading in readings.iter().filter(|it| it.metric == metric) {
        let labels: Vec<&str> = reading.labels.iter().map(String::as_str).collect();
        sample(
            text,
            metric,
            ending,
            &labels,
            None,
            &reading.value.to_string(),
        );
    }
}

fn histogram(
    text: &mut String,
    metric: &Metric,
    labels: &[&str],
    histogram: &Histogram,
    format: Format,
) {
    let count = histogram.count().to_string();
    for bound in BOUNDS {
        let le = 2f64.powi(i32::from(bound));
        let le = match format {
            Format::Text => le.to_string(),
            // A whole number has a point.
            Format::OpenMetrics => format!("{le:?}"),
        };
        let within = histogram.within(bound).to_string();
        sample(text, metric, "_bucket", labels, Some(&le), &within);
    }
    sample(text, metric, "_bucket", labels, Some("+Inf"), &count);
    sample(
        text,
        metric,
        "_sum",
        labels,
        None,
        &histogram.seconds().to_string(),
    );
    sample(text, metric, "_count", labels, None, &count);
}

fn sample(
    text: &mut String,
    metric: &Metric,
    ending: &str,
    labels: &[&str],
    le: Option<&str>,
    value: &str,
) {
    let name = metric.name;
    let names = metric.labels.iter().copied().chain(le.map(|_| "le"));
    let mut pairs = names.zip(labels.iter().copied().chain(le)).peekable();
    let _ = write!(text, "{PREFIX}{name}{ending}");
    if pairs.peek().is_some() {
        let mut before = '{';
        for (name, value) in pairs {
            let _ = write!(text, "{before}{name}=\"");
            escape(text, value);
            text.push('"');
            before = ',';
        }
        text.push('}');
    }
    let _ = writeln!(text, " {value}");
}

/// A label value, in which nothing is taken for its end.
fn escape(text: &mut String, value: &str) {
    for char in value.chars() {
        match char {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            char => text.push(char),
        }
    }
}
