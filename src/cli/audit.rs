//! `audit`: every invariant, against the live database.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::number::grouped;
use crate::store::Purpose;
use crate::store::audit::{GRACE, INVARIANTS, ROWS_MAX, Violation, audited};
use crate::store::report::{AuditFigures, Kind};
use crate::time;

use super::exit::{Code, Failure, quietly, verdict};
use super::follow::say;
use super::out::{self, Cell};
use super::patiently::waiting;
use super::reported;
use super::setup::{self, CliContext};

/// Checks every invariant.
#[derive(Debug, clap::Args)]
#[command(before_long_help = "Examples:
  ductworkd audit && echo all is well
  ductworkd audit --json | jq -r '.[].invariant' | sort | uniq -c

It reads one snapshot, changes no run, and may run beside the daemon. If the database accepts writes,
a report of the audit is kept for the console's page /trust and for metrics.
")]
pub struct Audit {
    /// Ignore problems younger than this; the daemon repairs them itself [default: 60s]
    #[arg(long, value_name = "DURATION", value_parser = super::duration)]
    grace: Option<Duration>,
}

impl Audit {
    pub fn execute(self, cli: &CliContext) -> Result<(), Failure> {
        let config = cli.config()?;
        setup::block_on(async {
            let mut conn = setup::connect(&config, Purpose::Query).await?;
            let started = Instant::now();
            let grace = self.grace.unwrap_or(GRACE);
            let audited = waiting("auditing", audited(&mut conn, grace)).await?;
            conn.close().await;
            let violations = audited.violations;
            let took = started.elapsed();
            let figures = AuditFigures::of(&violations, grace, took);
            let printed = print(cli, &violations, took);
            if let Some(more) = told(&audited.more) {
                // This stands beside the rows, which are for programs if they are JSON.
                say(&more);
            }
            let ok = violations.is_empty();
            reported::keep(&config, Kind::Audit, ok, &figures).await;
            verdict(printed, quietly(ok, Code::Failed))
        })
    }
}

fn print(cli: &CliContext, violations: &[Violation], took: Duration) -> Result<(), Failure> {
    if cli.out.json {
        let row = |violation: &Violation| {
            json!({
                "invariant": violation.invariant,
                "title": violation.title,
                "entity": violation.entity,
                "id": violation.id,
                "detail": violation.detail,
            })
        };
        let rows: Vec<serde_json::Value> = violations.iter().map(row).collect();
        return cli.out.value(&rows);
    }
    if violations.is_empty() {
        let (count, took) = (INVARIANTS.len(), time::span(took));
        return cli
            .out
            .text(&format!("all {count} invariants hold ({took})\n"));
    }
    let row = |violation: &Violation| {
        vec![
            Cell::styled(violation.invariant, out::BAD),
            Cell::new(&violation.entity),
            Cell::new(violation.id.to_string()),
            Cell::new(format!("{} (but {})", violation.detail, violation.title)),
        ]
    };
    let rows: Vec<Vec<Cell>> = violations.iter().map(row).collect();
    cli.out
        .text(&out::table(&["", "ROW", "ID", "DETAIL"], &rows))
}

/// The invariants that more rows break than are listed.
fn told(more: &[&str]) -> Option<String> {
    (!more.is_empty()).then(|| {
        format!(
            "there are more rows that break {}: {} of each check are listed",
            more.join(", "),
            grouped(ROWS_MAX as u64)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_are_not_listed_are_told() {
        assert_eq!(told(&[]), None);
        let told = told(&["I7", "I36"]).expect("there are more");
        assert_eq!(
            told,
            "there are more rows that break I7, I36: 1,000 of each check are listed"
        );
    }
}
