//! The promises of counts: adding up in any order, bounds, and texts that are read as they were meant.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;

use super::text::{Format, render};
use super::*;

/// An event.
#[derive(Clone, Debug)]
enum Event {
    Ended(String, String),
    Beaten,
    Took(String, String, u64),
    Committed(u64),
}

fn event(name: &'static str) -> impl Strategy<Value = Event> {
    let time = prop_oneof![Just(0), 1u64..1 << 20, 1u64..1 << 62];
    prop_oneof![
        (name, name).prop_map(|(pipeline, step)| Event::Ended(pipeline, step)),
        Just(Event::Beaten),
        (name, name, time.clone()).prop_map(|(pipeline, step, ns)| Event::Took(pipeline, step, ns)),
        time.prop_map(Event::Committed),
    ]
}

fn counts(events: &[Event]) -> Counts {
    let mut counts = Counts::default();
    for event in events {
        match event {
            Event::Ended(pipeline, step) => {
                counts.add(&EXECUTIONS_ENDED, &[pipeline, step, "success"], 1);
            }
            Event::Beaten => counts.add(&HEARTBEATS, &["worker", "written"], 1),
            Event::Took(pipeline, step, ns) => {
                let time = Duration::from_nanos(*ns);
                counts.observe(&STEP_DURATION, &[pipeline, step], time);
            }
            Event::Committed(ns) => {
                counts.observe(&COMMIT, &["worker"], Duration::from_nanos(*ns));
            }
        }
    }
    counts
}

fn sum(parts: &[&Counts]) -> Counts {
    let mut sum = Counts::default();
    parts.iter().for_each(|part| sum.merge(part));
    sum
}

/// A sample as its reader sees it: name, labels, value.
type Sample = (String, BTreeMap<String, String>, f64);

/// Reads a text as the formats say, character by character.
fn read(text: &str) -> Vec<Sample> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(sample).collect()
}

fn sample(line: &str) -> Sample {
    let end = line.find(['{', ' ']).expect("a name ends");
    let (name, mut rest) = line.split_at(end);
    let mut labels = BTreeMap::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        loop {
            let (label, after) = rest.split_once("=\"").expect("a label has a value");
            let mut value = String::new();
            let mut chars = after.char_indices();
            let end = loop {
                match chars.next().expect("a value ends") {
                    (at, '"') => break at,
                    (_, '\\') => value.push(match chars.next().expect("an escape ends").1 {
                        'n' => '\n',
                        char @ ('\\' | '"') => char,
                        char => panic!("\\{char} in {line}"),
                    }),
                    (_, char) => value.push(char),
                }
            };
            assert!(labels.insert(label.to_owned(), value).is_none(), "{line}");
            match after[end + 1..].strip_prefix(',') {
                Some(next) => rest = next,
                None => {
                    rest = after[end + 1..].strip_prefix('}').expect("the labels end");
                    break;
                }
            }
        }
    }
    let value = rest.strip_prefix(' ').expect("a value follows");
    (name.to_owned(), labels, value.parse().expect("a number"))
}

proptest! {
    #[test]
    fn counts_add_up_to_the_same_in_any_order(
        a in vec(event("[A-D]"), 0..30),
        b in vec(event("[A-D]"), 0..30),
        c in vec(event("[A-D]"), 0..30),
    ) {
        let [a, b, c] = [a, b, c].map(|events| counts(&events));
        prop_assert_eq!(sum(&[&a, &b]), sum(&[&b, &a]));
        prop_assert_eq!(sum(&[&sum(&[&a, &b]), &c]), sum(&[&a, &sum(&[&b, &c])]));
        prop_assert_eq!(&sum(&[&a]), &a);
    }

    #[test]
    fn counts_are_stored_as_they_are(events in vec(event(".{0,6}"), 0..40)) {
        let counts = counts(&events);
        prop_assert_eq!(Counts::parse(&counts.to_body()), counts);
    }

    #[test]
    fn a_text_is_read_as_it_was_meant_whatever_the_names(
        events in vec(event("(?s).{0,6}"), 0..20),
        host in "(?s).{0,12}",
    ) {
        let counts = counts(&events);
        let reading = Reading::new(&HEARTBEAT_AGE, &["worker", &host], 1.5);
        for format in [Format::Text, Format::OpenMetrics] {
            let text = render(&counts, std::slice::from_ref(&reading), format);
            // A reader takes CR for a part of a line.
            let samples = read(&text.replace('\r', "\u{fffd}"));
            let of = |name: &str| samples.iter().filter(|it| it.0 == name).collect::<Vec<_>>();
            let ended = of("ductwork_executions_ended_total");
            let all = events.iter().filter(|it| matches!(it, Event::Ended(..))).count();
            prop_assert_eq!(ended.iter().map(|it| it.2).sum::<f64>(), all as f64);
            let hosts: Vec<_> = of("ductwork_heartbeat_age_seconds");
            prop_assert_eq!(&hosts[0].1["host"], &host.replace('\r', "\u{fffd}"));
            let took = events.iter().filter(|it| matches!(it, Event::Took(..))).count();
            let counted: f64 = of("ductwork_step_duration_seconds_count").iter().map(|it| it.2).sum();
            prop_assert_eq!(counted, took as f64);
            prop_assert_eq!(text.ends_with("# EOF\n"), format == Format::OpenMetrics);
        }
    }

    #[test]
    fn json_has_the_series_of_the_text(events in vec(event("[a-c]{1,2}"), 0..20)) {
        let counts = counts(&events);
        let readings = [Reading::new(&HEARTBEAT_AGE, &["worker", "box"], 1.5)];
        let mut of_json: Vec<Sample> = Vec::new();
        for metric in json::values(&counts, &readings) {
            for series in metric.series {
                let text = |(name, value): (_, serde_json::Value)| (name, value.as_str().unwrap().to_owned());
                let labels: BTreeMap<String, String> = series.labels.into_iter().map(text).collect();
                let name = &metric.name;
                if let Some(value) = series.value {
                    of_json.push((name.clone(), labels.clone(), value.as_f64().unwrap()));
                }
                if let Some(observed) = series.observed {
                    for (le, within) in observed.buckets.iter().map(|(le, n)| (le.to_string(), *n)).chain([("+Inf".to_owned(), observed.count)]) {
                        let mut labels = labels.clone();
                        labels.insert("le".to_owned(), le);
                        of_json.push((format!("{name}_bucket"), labels, within as f64));
                    }
                    of_json.push((format!("{name}_sum"), labels.clone(), observed.sum));
                    of_json.push((format!("{name}_count"), labels, observed.count as f64));
                }
            }
        }
        prop_assert_eq!(of_json, read(&render(&counts, &readings, Format::Text)));
    }

    /// The bounds that are shown are ends of buckets.
    #[test]
    fn what_a_histogram_shows_is_exact(times in vec(0u64..40_000_000_000_000, 0..40)) {
        let mut histogram = Histogram::default();
        times.iter().for_each(|ns| histogram.observe(Duration::from_nanos(*ns)));
        for bound in BOUNDS {
            let end = Duration::from_secs_f64(2f64.powi(i32::from(bound)));
            let within = times.iter().filter(|ns| Duration::from_nanos(**ns) <= end).count();
            prop_assert_eq!(histogram.within(bound), within as u64);
        }
        prop_assert_eq!(histogram.count(), times.len() as u64);
    }
}

#[test]
fn a_time_at_a_bound_is_within_it_and_a_nanosecond_more_is_not() {
    for bound in BOUNDS {
        let nanoseconds = 1e9 * 2f64.powi(i32::from(bound));
        let at = Duration::from_nanos(nanoseconds.floor() as u64);
        let mut histogram = Histogram::default();
        histogram.observe(at);
        histogram.observe(at + Duration::from_nanos(1));
        assert_eq!(histogram.within(bound), 1, "2^{bound}");
    }
}

#[test]
fn names_beyond_the_bounds_are_one_and_nothing_is_lost() {
    let mut counts = Counts::default();
    for pipeline in 0..PIPELINES_MAX + 50 {
        for step in 0..10 {
            let (pipeline, step) = (format!("P{pipeline:03}"), format!("S{step}"));
            counts.add(&EXECUTIONS_ENDED, &[&pipeline, &step, "success"], 1);
        }
        counts.add(&RUNS_ENDED, &[&format!("P{pipeline:03}"), "completed"], 1);
    }
    for step in 0..100 {
        counts.add(
            &EXECUTIONS_ENDED,
            &["P000", &format!("S{step}"), "error"],
            1,
        );
    }
    let all = (PIPELINES_MAX as u64 + 50) * 10;
    assert_eq!(counts.sum(&EXECUTIONS_ENDED, &[("result", "success")]), all);
    assert_eq!(counts.sum(&EXECUTIONS_ENDED, &[("result", "error")]), 100);
    assert_eq!(counts.sum(&RUNS_ENDED, &[("pipeline", OTHER)]), 50);
    let series = counts.counters(&EXECUTIONS_ENDED).count();
    assert!(series <= STEPS_IN_ALL_MAX + 2 * PIPELINES_MAX, "{series}");
    assert_eq!(counts.counters(&RUNS_ENDED).count(), PIPELINES_MAX + 1);
    let before = counts.to_body();
    let stored = Counts::parse(&before);
    assert_eq!(stored.sum(&EXECUTIONS_ENDED, &[]), all + 100);
}

#[test]
fn readings_beyond_the_bounds_are_one() {
    let of = |n: usize| {
        let name = format!("P{n:03}");
        [
            Reading::new(&RUNS, &[&name, "completed"], 1.0),
            Reading::new(&QUEUE_OLDEST_AGE, &[&name], n as f64),
        ]
    };
    let readings = (0..PIPELINES_MAX + 9).flat_map(of).collect();
    let bounded = bounded(readings);
    assert_eq!(bounded.len(), 2 * (PIPELINES_MAX + 1));
    let other: Vec<f64> = bounded
        .iter()
        .filter(|it| it.labels[0] == OTHER)
        .map(|it| it.value)
        .collect();
    assert_eq!(other, [9.0, (PIPELINES_MAX + 8) as f64]);
}

#[test]
fn a_new_row_has_nothing_of_what_the_old_one_has() {
    let own = Own::default();
    let beat = |own: &Own| own.count(|counts| counts.add(&HEARTBEATS, &["worker", "written"], 1));
    let took = |own: &Own| {
        own.count(|counts| counts.observe(&COMMIT, &["worker"], Duration::from_secs(1)));
    };
    beat(&own);
    took(&own);
    let body = own.to_write().unwrap();
    own.written(body.clone());
    assert_eq!(own.to_write(), None);
    beat(&own);
    // The process died before this was written.
    own.begin_anew();
    let anew = Counts::parse(&own.to_write().unwrap());
    assert_eq!(anew.sum(&HEARTBEATS, &[]), 1);
    assert_eq!(anew.histograms(&COMMIT).count(), 0);
    let mut all = Counts::parse(&body);
    all.merge(&anew);
    assert_eq!(all.sum(&HEARTBEATS, &[]), 2);
    assert_eq!(all.histograms(&COMMIT).next().unwrap().1.count(), 1);
}

#[test]
fn what_cannot_be_read_counts_nothing_and_what_a_newer_version_counts_is_kept() {
    assert_eq!(Counts::parse("no JSON"), Counts::default());
    let newer = r#"{"c":{"news":{"A":3},"retries":{"A":1}},"h":{},"x":1}"#;
    let counts = Counts::parse(newer);
    assert!(counts.to_body().contains(r#""news":{"A":3}"#));
    // The newer version has other labels there.
    assert!(!render(&counts, &[], Format::Text).contains("retries"));
}

#[test]
fn both_formats_are_as_their_readers_expect() {
    let mut counts = Counts::default();
    counts.add(&RUNS_ENDED, &["A \"b\"\\\n", "completed"], 2);
    counts.add(&LOG_LINES_DROPPED, &[], 0);
    counts.observe(&RECOVERY, &[], Duration::from_millis(1500));
    let text = render(&counts, &[], Format::Text);
    for line in [
        "# HELP ductwork_runs_ended_total Runs that",
        "# TYPE ductwork_runs_ended_total counter\nductwork_runs_ended_total{pipeline=\"A \\\"b\\\"\\\\\\n\",status=\"completed\"} 2\n",
        "ductwork_log_lines_dropped_total 0\n",
        "# TYPE ductwork_recovery_seconds histogram\nductwork_recovery_seconds_bucket{le=\"0.0009765625\"} 0\n",
        "ductwork_recovery_seconds_bucket{le=\"1\"} 0\nductwork_recovery_seconds_bucket{le=\"2\"} 1\n",
        "ductwork_recovery_seconds_bucket{le=\"+Inf\"} 1\nductwork_recovery_seconds_sum 1.5\nductwork_recovery_seconds_count 1\n",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    let text = render(&counts, &[], Format::OpenMetrics);
    for line in [
        "# TYPE ductwork_runs_ended counter\nductwork_runs_ended_total{",
        "_bucket{le=\"1.0\"} 0\n",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    assert!(text.ends_with("\n# EOF\n"));
}

#[test]
fn the_list_is_sound() {
    let names: std::collections::BTreeSet<_> = METRICS.iter().map(|metric| metric.name).collect();
    assert_eq!(names.len(), METRICS.len(), "a name is there twice");
    for metric in METRICS {
        let timed = metric.name.ends_with("_seconds");
        assert!(timed || metric.kind != Kind::Histogram, "{}", metric.name);
        assert!(!metric.help.ends_with('.'), "{}", metric.name);
        let identifying = ["id", "pid", "process", "run"];
        assert!(
            !metric
                .labels
                .iter()
                .any(|label| identifying.contains(label))
        );
    }
}

#[test]
fn what_a_process_measured_is_in_its_row_and_in_no_sum() {
    let own = Own::default();
    own.count(|counts| counts.add(&HEARTBEATS, &["worker", "written"], 3));
    let measured = Measured {
        memory: Some(1 << 30),
        cpu_ms: Some(1_500),
        slots: Some(5),
        ..Measured::default()
    };
    own.measure(measured);
    let body = own.to_write().unwrap();
    assert_eq!(Measured::parse(&body), measured);
    // An older version reads such a row, and the rows that it writes have no measurements.
    let counts = Counts::parse(&body);
    assert_eq!(counts.sum(&HEARTBEATS, &[]), 3);
    assert_eq!(Measured::parse(&counts.to_body()), Measured::default());
    for other in [
        r#"{"c":{}}"#,
        r#"{"m":{"memory":-1}}"#,
        r#"{"m":7}"#,
        "no JSON",
    ] {
        assert_eq!(Measured::parse(other), Measured::default(), "{other}");
    }
    let newer = r#"{"c":{},"h":{},"m":{"memory":7,"threads":3}}"#;
    assert_eq!(Measured::parse(newer).memory, Some(7));
}

#[test]
fn the_living_have_series_of_their_own_up_to_a_bound_and_no_sum_loses_any() {
    let owner = |host: &str, pipeline: &str| Owner {
        host: host.to_owned(),
        role: "worker".to_owned(),
        pipeline: pipeline.to_owned(),
    };
    let of = |n| Measured {
        memory: Some(n),
        cpu_ms: Some(500),
        slots: Some(4),
        busy: Some(1),
        ..Measured::default()
    };
    let mut processes = Processes::default();
    processes.add(owner("a", "P"), of(1));
    processes.add(owner("a", "P"), of(2));
    processes.add(owner("b", ""), Measured::default());
    let text = render(&Counts::default(), &processes.readings(), Format::Text);
    for line in [
        "ductwork_slots{pipeline=\"P\",state=\"busy\"} 2\n",
        "ductwork_slots{pipeline=\"P\",state=\"free\"} 6\n",
        "ductwork_process_resident_memory_bytes{host=\"a\",role=\"worker\",pipeline=\"P\",slot=\"0\"} 1\n",
        "ductwork_process_resident_memory_bytes{host=\"a\",role=\"worker\",pipeline=\"P\",slot=\"1\"} 2\n",
        "# TYPE ductwork_process_cpu_seconds_total counter\n",
        "ductwork_process_cpu_seconds_total{host=\"a\",role=\"worker\",pipeline=\"P\",slot=\"1\"} 0.5\n",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    assert!(
        !text.contains("open_fds") && !text.contains("host=\"b\""),
        "{text}"
    );

    let mut processes = Processes::default();
    for n in 0..PROCESSES_MAX + 3 {
        processes.add(owner(&format!("h{n}"), "P"), of(1));
    }
    let readings = processes.readings();
    let memory = || readings.iter().filter(|it| it.metric == &PROCESS_MEMORY);
    assert_eq!(memory().count(), PROCESSES_MAX + 1);
    assert_eq!(
        memory().map(|it| it.value).sum::<f64>(),
        (PROCESSES_MAX + 3) as f64
    );
    let other = memory().find(|it| it.labels[0] == OTHER).unwrap();
    assert_eq!(
        (other.labels.as_slice(), other.value),
        (&[OTHER, "worker", OTHER, OTHER].map(str::to_owned)[..], 3.0)
    );
}
