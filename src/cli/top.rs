//! `top`: the numbers of `metrics` as they change, for a person.
//!
//! Owns: one reading of all numbers at a time, and its picture. Never: takes more than a twentieth of the
//! database's time, or writes.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use crate::metrics::window::{Lately, Window};
use crate::metrics::{
    DB_ERRORS, EXECUTIONS_ENDED, EXECUTIONS_HELD, Histogram, LEASES_EXPIRED, Metric,
    PIPELINE_PAUSED, PROCESSES, QUEUE_DEPTH, QUEUE_OLDEST_AGE, RECOVERIES, RETRIES, RUN_DURATION,
    RUNS, RUNS_ENDED, RUNS_STARTED, Reading, STALE_WRITES, STEP_WAIT,
};
use crate::number::grouped;
use crate::problem::Problem;
use crate::store::{Conn, Purpose, query};
use crate::time;

use super::columns;
use super::exit::{Code, Failure};
use super::follow::hindrance;
use super::interrupt;
use super::live::{Frame, Screen};
use super::out::{ASKS, BAD, Cell, DIM, paint, short, table};
use super::outage::Outages;
use super::setup::{self, CliContext};
use super::{shot, terminal};

/// The database gets this many times the duration of a reading for others.
const SHARE: u32 = 20;

/// Shows what goes on, again and again: queues, runs and steps by the minute, waits, and processes.
#[derive(Debug, clap::Args)]
#[command(before_long_help = "Examples:
  ductworkd top
  ductworkd top --every 10s

Rates are per minute, over the last minute; each process adds to them every 10 s. p95 is the time that 95 of 100 did \
not exceed, accurate to a fifth. Ctrl-C ends the command. `ductworkd metrics` prints the same numbers for programs.
")]
pub struct Top {
    /// The time between two readings, 1s to 1h
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = super::duration)]
    every: Duration,
}

/// All numbers at one moment.
struct Now {
    /// By the database's clock, in µs since 1970.
    at: i64,
    readings: Vec<Reading>,
}

impl Top {
    pub fn execute(self, cli: &CliContext) -> Result<ExitCode, Failure> {
        let range = Duration::from_secs(1)..=Duration::from_secs(3_600);
        if !range.contains(&self.every) {
            let problem = Problem::new("`--every` takes 1s to 1h");
            return Err(Failure::usage(problem));
        }
        let hindrance = match cli.out.json {
            true => Some("has no JSON output".to_owned()),
            false => hindrance().map(|why| format!("draws on a terminal, and {why}")),
        };
        if let Some(why) = hindrance {
            let problem = Problem::new(format!("`top` {why}"));
            return Err(Failure::usage(problem.help(
                "`ductworkd metrics` prints the same numbers, and `ductworkd runs` lists runs",
            )));
        }
        let config = cli.config()?;
        let lease = config.supervisor.reaper_timeout;
        setup::block_on(async {
            let mut conn = setup::connect(&config, Purpose::Query).await?;
            let mut outages = Outages::new(config.location()?);
            let mut screen = Screen::on(terminal::stderr()?);
            let mut window = Window::default();
            let colour = shot::style().colour;
            let mut enough = interrupt::caught()?;
            let work = async {
                loop {
                    let began = Instant::now();
                    match read(&mut conn, lease, &mut window).await {
                        Ok(now) => {
                            let (env, width) = (&config.environment, screen.size().1);
                            let lately = window.lately();
                            let picture = picture(&now, lately.as_ref(), env, width);
                            screen.draw(&[], &if colour { picture } else { picture.plain() });
                        }
                        Err(failure) => {
                            let tell = &mut |line| screen.draw(&[], &away(line));
                            outages.ride_out(&mut conn, failure, tell).await?;
                            continue;
                        }
                    }
                    let pause = self.every.max(began.elapsed() * SHARE);
                    tokio::time::sleep(pause).await;
                }
            };
            tokio::select! {
                biased;
                _ = enough.recv() => Ok(ExitCode::from(Code::Interrupted as u8)),
                failed = work => failed,
            }
        })
    }
}

async fn read(conn: &mut Conn, lease: Duration, window: &mut Window) -> Result<Now, Failure> {
    let at = query::now(conn).await?;
    let (counts, _measured) = crate::store::metrics::counts(conn).await?;
    window.push(at, counts);
    let mut readings = crate::store::metrics::readings(conn, lease).await?;
    readings.extend(crate::store::metrics::runs(conn).await?);
    Ok(Now { at, readings })
}

/// A picture that consists of words alone.
fn away(line: String) -> Frame {
    Frame {
        title: String::new(),
        rows: Vec::new(),
        first: 0,
        last: vec![line],
        ended: false,
    }
}

/// The columns of the table.
const COLUMNS: [&str; 14] = [
    "PIPELINE", "DUE", "OLDEST", "LATER", "HELD", "STARTED", "ENDED", "STEPS", "FAILED", "RETRIED",
    "WAIT P95", "RUN P95", "HALTED", "WAITING",
];

/// The columns that a narrow terminal omits, in this order.
const SPARED: [&str; 10] = [
    "RETRIED", "LATER", "STEPS", "RUN P95", "STARTED", "OLDEST", "WAITING", "WAIT P95", "FAILED",
    "HELD",
];

/// The table with as many columns as fit on a terminal of this width; true if some are left out. A number that is
/// cut would be a different number.
fn fitting(pipelines: &[Vec<Cell>], width: usize) -> (String, bool) {
    let mut kept: Vec<usize> = (0..COLUMNS.len()).collect();
    let mut spared = SPARED.iter();
    loop {
        let headings: Vec<&str> = kept.iter().map(|at| COLUMNS[*at]).collect();
        let row = |row: &Vec<Cell>| kept.iter().map(|at| row[*at].clone()).collect();
        let rows: Vec<Vec<Cell>> = pipelines.iter().map(row).collect();
        let text = table(&headings, &rows);
        let fits = text.lines().all(|line| columns::width(line) <= width);
        match spared.next() {
            Some(heading) if !fits => kept.retain(|at| COLUMNS[*at] != *heading),
            _ => return (text, kept.len() < COLUMNS.len()),
        }
    }
}

/// The picture of one reading, for a terminal of this width.
fn picture(now: &Now, lately: Option<&Lately>, env: &str, width: usize) -> Frame {
    let span = match lately {
        Some(lately) => format!("by the minute, over {}", time::whole(lately.span)),
        None => "by the minute, in a few seconds".to_owned(),
    };
    let at = time::rfc3339(now.at);
    let title = format!(
        "ductworkd top  {env} · {} UTC · {span}",
        at.get(..19).unwrap_or(&at).replace('T', " ")
    );
    let pipelines = pipelines(now, lately, width);
    let (rows, narrow) = fitting(&pipelines, width);
    let mut rows: Vec<String> = rows.lines().map(str::to_owned).collect();
    let mut last = vec![String::new()];
    let mut hints = vec!["Ctrl-C ends"];
    if narrow {
        hints.push("a wider terminal shows more");
    }
    last.push(paint(DIM, &hints.join(" · ")));
    last.extend(told("processes  ", &processes(now), width));
    last.extend(told("a minute   ", &trouble(lately), width));
    if pipelines.is_empty() {
        rows.push(paint(DIM, "no pipeline has had a run so far"));
    }
    Frame {
        title,
        rows,
        first: 0,
        last,
        ended: false,
    }
}

fn pipelines(now: &Now, lately: Option<&Lately>, width: usize) -> Vec<Vec<Cell>> {
    let of_readings = now.readings.iter().filter_map(|reading| {
        let place = reading
            .metric
            .labels
            .iter()
            .position(|name| *name == "pipeline")?;
        reading.labels.get(place).cloned()
    });
    let of_counts = lately.into_iter().flat_map(|lately| {
        let started = lately.counts.counters(&RUNS_STARTED);
        started.map(|(labels, _)| labels[0].to_owned())
    });
    let names: BTreeSet<String> = of_readings.chain(of_counts).collect();
    names
        .iter()
        .map(|name| pipeline(now, lately, name, width))
        .collect()
}

fn pipeline(now: &Now, lately: Option<&Lately>, name: &str, width: usize) -> Vec<Cell> {
    let gauge = |metric, labels: &[&str]| now.gauge(metric, labels).unwrap_or_default();
    let whole = |number: f64| Cell::number(grouped(number as u64));
    let wrong = |number: f64, style| match number > 0.0 {
        true => Cell::number(grouped(number as u64)).painted(style),
        false => whole(number),
    };
    let rate = |metric: &'static Metric, filter: &dyn Fn(&[&str]) -> bool| match lately {
        None => Cell::number("…").painted(DIM),
        Some(lately) => {
            let series = lately.counts.counters(metric);
            let matching = series.filter(|(labels, _)| labels[0] == name && filter(labels));
            let sum = matching.map(|(_, count)| count).sum();
            Cell::number(rate(lately.per_minute(sum)))
        }
    };
    let p95 = |metric: &'static Metric| {
        let mut all = Histogram::default();
        for (labels, histogram) in lately
            .iter()
            .flat_map(|lately| lately.counts.histograms(metric))
        {
            if labels[0] == name {
                all.merge(histogram);
            }
        }
        all.quantile(0.95).map_or_else(String::new, time::span)
    };
    let oldest = now
        .gauge(&QUEUE_OLDEST_AGE, &[name])
        .filter(|age| *age > 0.0);
    let oldest = oldest.map_or_else(String::new, |age| time::whole(Duration::from_secs_f64(age)));
    let any = |_: &[&str]| true;
    // This leaves room for the numbers beside the name.
    let shown = short(name, width / 3);
    vec![
        match now.gauge(&PIPELINE_PAUSED, &[name]) {
            Some(_) => Cell::styled(format!("{shown} (paused)"), ASKS),
            None => Cell::new(shown),
        },
        whole(gauge(&QUEUE_DEPTH, &[name, "due"])),
        Cell::number(oldest),
        whole(gauge(&QUEUE_DEPTH, &[name, "later"])),
        whole(gauge(&EXECUTIONS_HELD, &[name])),
        rate(&RUNS_STARTED, &any),
        rate(&RUNS_ENDED, &any),
        rate(&EXECUTIONS_ENDED, &any),
        rate(&EXECUTIONS_ENDED, &|labels| labels[2] != "success"),
        rate(&RETRIES, &any),
        Cell::number(p95(&STEP_WAIT)),
        Cell::number(p95(&RUN_DURATION)),
        wrong(gauge(&RUNS, &[name, "halted"]), BAD),
        wrong(gauge(&RUNS, &[name, "dampened"]), ASKS),
    ]
}

/// A list after its name, in as many lines as it needs.
fn told(name: &str, parts: &[String], width: usize) -> Vec<String> {
    let (mut lines, mut line) = (Vec::new(), name.to_owned());
    for (at, part) in parts.iter().enumerate() {
        let between = if at == 0 { "" } else { " · " };
        let more = format!("{between}{part}");
        if columns::width(&line) + columns::width(&more) <= width {
            line.push_str(&more);
        } else {
            let next = format!("{:indent$}{part}", "", indent = name.len());
            lines.push(std::mem::replace(&mut line, next));
        }
    }
    lines.push(line);
    lines
}

/// Processes by role and state.
fn processes(now: &Now) -> Vec<String> {
    let processes = now
        .readings
        .iter()
        .filter(|it| it.metric.name == PROCESSES.name);
    let parts = processes.filter_map(|reading| {
        let [role, state] = reading.labels.as_slice() else {
            return None;
        };
        let text = format!("{role} {} {state}", reading.value);
        Some(match (state.as_str(), reading.value > 0.0) {
            ("up", true) => text,
            ("quiet" | "stopping", true) => paint(ASKS, &text),
            // A role with no process that is up, and every process that is silent or in trouble.
            _ => paint(BAD, &text),
        })
    });
    parts.collect()
}

/// The faults that the daemon has mended.
fn trouble(lately: Option<&Lately>) -> Vec<String> {
    let counts = [
        (&LEASES_EXPIRED, "leases expired"),
        (&STALE_WRITES, "late results refused"),
        (&RECOVERIES, "dead processes recovered"),
        (&DB_ERRORS, "database errors"),
    ];
    let parts = counts.map(|(metric, name)| match lately {
        None => paint(DIM, &format!("{name} …")),
        Some(lately) => {
            let count: u64 = lately.counts.counters(metric).map(|(_, count)| count).sum();
            let text = format!("{name} {}", rate(lately.per_minute(count)));
            if count > 0 { paint(ASKS, &text) } else { text }
        }
    });
    parts.to_vec()
}

impl Now {
    fn gauge(&self, metric: &'static Metric, labels: &[&str]) -> Option<f64> {
        let mut readings = self.readings.iter();
        let found = readings.find(|it| it.metric.name == metric.name && it.labels == labels);
        found.map(|reading| reading.value)
    }
}

/// A number per minute: a small one to a tenth.
fn rate(number: f64) -> String {
    match number {
        0.0 => "0".to_owned(),
        small if small < 9.95 => format!("{small:.1}"),
        large => grouped(large.round() as u64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_narrow_terminal_shows_fewer_columns_and_each_number_whole() {
        let mut row = vec![Cell::new("A pipeline of some length")];
        row.extend((1..COLUMNS.len()).map(|at| Cell::number(format!("7,{at:03}"))));
        let mut columns = Vec::new();
        for width in [60, 80, 100, 160] {
            let (text, narrow) = fitting(&[row.clone()], width);
            let mut lines = text.lines();
            let headings = lines.next().unwrap();
            assert!(
                text.lines().all(|line| columns::width(line) <= width),
                "{text}"
            );
            for (at, heading) in COLUMNS.iter().enumerate().skip(1) {
                let number = format!("7,{at:03}");
                assert_eq!(
                    headings.contains(heading),
                    text.contains(&number),
                    "{heading}: {text}"
                );
            }
            assert_eq!(narrow, width < 160, "{text}");
            let faults = [
                "leases expired 1,234".to_owned(),
                "database errors 56".to_owned(),
            ];
            let lines = told("a minute   ", &faults, width.min(40));
            assert_eq!(lines[1], "           database errors 56");
            columns.push(headings.split("  ").filter(|it| !it.is_empty()).count());
        }
        assert!(columns.is_sorted() && columns[0] > 3, "{columns:?}");
        assert_eq!(columns[3], COLUMNS.len());
    }
}
