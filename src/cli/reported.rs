//! Keeping a command's findings, for the console and for metrics.
//!
//! Owns: when they are kept: if the database exists, has this program's schema and accepts writes. Never: fails a
//! command because they cannot be kept.

use std::io::Write;
use std::time::Duration;

use serde::Serialize;

use crate::config::Config;
use crate::store::report::{self, Kind};
use crate::store::{Error, Purpose, migrate, writable};
use crate::telemetry;

use super::setup;

/// The longest wait for a report that is kept for others.
const WITHIN: Duration = Duration::from_secs(10);

/// Keeps the findings. If they should be kept and cannot be, a line on standard error says why.
pub async fn keep(config: &Config, kind: Kind, ok: bool, figures: &impl Serialize) {
    let kept = tokio::time::timeout(WITHIN, kept(config, kind, ok, figures)).await;
    let why = match kept {
        Ok(Ok(())) => return,
        Ok(Err(error)) => telemetry::chain(&error),
        Err(_) => format!("the database has not answered for {} s", WITHIN.as_secs()),
    };
    let kind = kind.as_str();
    // If nobody reads it, nothing is lost.
    let _ = writeln!(
        std::io::stderr(),
        "warning: this {kind} is not kept for the console and for metrics: {why}"
    );
}

async fn kept(
    config: &Config,
    kind: Kind,
    ok: bool,
    figures: &impl Serialize,
) -> Result<(), Error> {
    if setup::exists(config).is_err() {
        return Ok(());
    }
    let location = config.location()?;
    let mut conn = location.connect(Purpose::Engine).await?;
    match migrate::check(&mut conn).await {
        // The database has nothing to report yet, or it belongs to a newer program.
        Err(Error::Schema(_)) => return Ok(()),
        checked => checked.map(drop)?,
    }
    if writable::refused(&mut conn, &location).await?.is_some() {
        return Ok(());
    }
    report::record(&mut conn, kind, ok, figures).await?;
    conn.close().await;
    Ok(())
}
