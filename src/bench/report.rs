//! The numbers of a benchmark, and their form for people.
//!
//! Owns: the report as a value, as a table, and percentiles. Never: measures.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::Workload;

/// The findings of a benchmark.
#[derive(Clone, Debug, Serialize)]
pub struct BenchReport {
    /// Of this program.
    pub version: &'static str,
    /// The database, and its durability.
    pub database: String,
    /// Cores that this process may use.
    pub cores: usize,
    /// Executions at once, per worker.
    pub slots: u32,
    /// The numbers, in the order in which they were measured.
    pub measures: Vec<Measure>,
    /// The audits after each workload.
    pub audits: Vec<Audit>,
}

/// One number.
#[derive(Clone, Debug, Serialize)]
pub struct Measure {
    /// The workload.
    pub workload: Workload,
    /// The quantity.
    pub name: String,
    /// The number.
    pub value: f64,
    /// Its unit.
    pub unit: &'static str,
    /// How it was measured; may be empty.
    pub note: String,
}

/// The audit after a workload.
#[derive(Clone, Debug, Serialize)]
pub struct Audit {
    /// The workload.
    pub workload: Workload,
    /// The number of invariants that were checked.
    pub invariants: usize,
    /// The rows that break them; empty if all is well.
    pub violations: Vec<String>,
}

impl BenchReport {
    /// True when no audit found anything.
    pub fn is_sound(&self) -> bool {
        self.audits.iter().all(|audit| audit.violations.is_empty())
    }

    /// Adds a number.
    pub(super) fn add(
        &mut self,
        workload: Workload,
        name: impl Into<String>,
        value: f64,
        unit: &'static str,
        note: impl Into<String>,
    ) {
        self.measures.push(Measure {
            workload,
            name: name.into(),
            value,
            unit,
            note: note.into(),
        });
    }

    /// Adds the median and the 99th percentile of `times`, in milliseconds.
    pub(super) fn add_times(
        &mut self,
        workload: Workload,
        name: &str,
        times: &[Duration],
        note: &str,
    ) {
        let mut sorted = times.to_vec();
        sorted.sort();
        for (label, fraction) in [("p50", 0.5), ("p99", 0.99)] {
            if let Some(time) = percentile(&sorted, fraction) {
                let note = if label == "p50" { note } else { "" };
                self.add(
                    workload,
                    format!("{name}, {label}"),
                    millis(time),
                    "ms",
                    note,
                );
            }
        }
    }
}

/// Milliseconds.
pub(super) fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1_000.0
}

/// The smallest of the sorted times that this `fraction` of them does not exceed.
fn percentile(sorted: &[Duration], fraction: f64) -> Option<Duration> {
    let rank = (sorted.len() as f64 * fraction).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}

/// A number with three significant digits and separated thousands.
fn number(value: f64) -> String {
    let decimals = match value.abs() {
        below if below < 10.0 => 2,
        below if below < 100.0 => 1,
        _ => 0,
    };
    let text = format!("{value:.decimals$}");
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let mut grouped = String::new();
    for (index, digit) in whole.chars().enumerate() {
        let left = whole.len() - index;
        if index > 0 && left % 3 == 0 && !grouped.ends_with('-') {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    match fraction {
        "" => grouped,
        fraction => format!("{grouped}.{fraction}"),
    }
}

impl fmt::Display for BenchReport {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = |n: usize| if n == 1 { "" } else { "s" };
        writeln!(
            to,
            "ductworkd {} on {}; {} core{}, {} slot{} per worker\n",
            self.version,
            self.database,
            self.cores,
            plural(self.cores),
            self.slots,
            plural(self.slots as usize),
        )?;
        let cells: Vec<[String; 4]> = self
            .measures
            .iter()
            .map(|m| {
                let value = match m.unit {
                    // A count.
                    "" => format!("{:.0}", m.value),
                    _ => number(m.value),
                };
                [m.name.clone(), value, m.unit.to_owned(), m.note.clone()]
            })
            .collect();
        let width = |column: usize| {
            let widths = cells.iter().map(|row| row[column].chars().count());
            widths.max().unwrap_or(0)
        };
        let (names, values, units) = (width(0), width(1), width(2));
        let mut last = None;
        for (measure, [name, value, unit, note]) in self.measures.iter().zip(&cells) {
            let workload = match last == Some(measure.workload) {
                true => "",
                false => measure.workload.as_str(),
            };
            last = Some(measure.workload);
            let line =
                format!("{workload:<12}{name:<names$}  {value:>values$} {unit:<units$}  {note}");
            writeln!(to, "{}", line.trim_end())?;
        }
        for (index, audit) in self.audits.iter().enumerate() {
            let head = if index == 0 { "\naudit" } else { "" };
            let pad = if index == 0 { 13 } else { 12 };
            let name = audit.workload.as_str();
            match audit.violations.len() {
                0 => writeln!(
                    to,
                    "{head:<pad$}after {name}: all {} invariants hold",
                    audit.invariants
                )?,
                broken => {
                    writeln!(to, "{head:<pad$}after {name}: BROKEN by {broken} rows")?;
                    for violation in audit.violations.iter().take(10) {
                        writeln!(to, "{:<14}{violation}", "")?;
                    }
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_a_time_that_was_measured() {
        let times: Vec<Duration> = (1..=200).map(Duration::from_millis).collect();
        assert_eq!(percentile(&times, 0.5), Some(Duration::from_millis(100)));
        assert_eq!(percentile(&times, 0.99), Some(Duration::from_millis(198)));
        assert_eq!(
            percentile(&times[..1], 0.99),
            Some(Duration::from_millis(1))
        );
        assert_eq!(percentile(&[], 0.5), None);
    }

    #[test]
    fn numbers_are_as_long_as_they_mean_something() {
        for (value, text) in [
            (0.0, "0.00"),
            (3.456, "3.46"),
            (34.56, "34.6"),
            (345.6, "346"),
            (1_234.5, "1,234"),
            (1_234_567.0, "1,234,567"),
        ] {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn the_table_is_aligned_and_names_each_workload_once() {
        let mut report = BenchReport {
            version: "1.2.3",
            database: "SQLite 3".to_owned(),
            cores: 2,
            slots: 1,
            measures: Vec::new(),
            audits: vec![
                Audit {
                    workload: Workload::Chain5,
                    invariants: 31,
                    violations: Vec::new(),
                },
                Audit {
                    workload: Workload::Latency,
                    invariants: 31,
                    violations: vec!["I1 step x: has 2 open executions".to_owned()],
                },
            ],
        };
        report.add(
            Workload::Chain5,
            "throughput",
            12_345.6,
            "steps/s",
            "a note",
        );
        report.add(Workload::Chain5, "CPU", 93.0, "%", "");
        let times = [Duration::from_micros(1_500)];
        report.add_times(Workload::Latency, "end to end", &times, "1 run");
        assert_eq!(
            report.to_string(),
            "ductworkd 1.2.3 on SQLite 3; 2 cores, 1 slot per worker\n\
             \n\
             chain5      throughput       12,346 steps/s  a note\n\
             \x20           CPU                93.0 %\n\
             latency     end to end, p50    1.50 ms       1 run\n\
             \x20           end to end, p99    1.50 ms\n\
             \n\
             audit       after chain5: all 31 invariants hold\n\
             \x20           after latency: BROKEN by 1 rows\n\
             \x20             I1 step x: has 2 open executions\n"
        );
        assert!(!report.is_sound());
    }
}
