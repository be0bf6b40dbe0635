//! Races that are forced on the configured database, for anybody who wants to see them lost.
//!
//! Owns: the drills, their trace and their report. Each is played in a schema or file of its own
//! beside the configured one, which is removed afterwards in any case. The actors are this
//! process's own, with connections of their own, and make the calls that the engine makes; the
//! drill decides the order of these calls, so the race happens every time. Never: touches real
//! runs, kills a process.

mod races;
mod stage;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::Serialize;

use crate::config::Config;
use crate::process::signal::Signals;
use crate::process::start;
use crate::store;
use crate::store::audit::{self, INVARIANTS};
use crate::store::bench::measure;
use crate::store::report::{DrillFigures, Drilled, milliseconds};
use crate::store::sandbox::Sandbox;

use stage::Stage;

/// A race.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Drill {
    /// A worker is taken for dead, and comes back with a result.
    LeaseRace,
    /// An advancer is taken for dead, and comes back with its claim.
    ZombieAdvancer,
    /// A worker dies before its step has done anything.
    CrashBeforeEffect,
    /// A worker dies after its step has had its effect, and before the commit.
    CrashAfterEffect,
    /// Two reapers find the same dead process.
    DoubleReaper,
    /// A commit happens, and its answer is lost.
    LostAcknowledgement,
    /// The last two branches of a fan-in arrive at once.
    FanInRace,
    /// The database goes away while a result waits to be committed, and comes back.
    DatabaseAway,
}

impl Drill {
    /// All drills, in the order in which they are played.
    pub const ALL: [Self; 8] = [
        Self::LeaseRace,
        Self::ZombieAdvancer,
        Self::CrashBeforeEffect,
        Self::CrashAfterEffect,
        Self::DoubleReaper,
        Self::LostAcknowledgement,
        Self::FanInRace,
        Self::DatabaseAway,
    ];

    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::LeaseRace => "lease-race",
            Self::ZombieAdvancer => "zombie-advancer",
            Self::CrashBeforeEffect => "crash-before-effect",
            Self::CrashAfterEffect => "crash-after-effect",
            Self::DoubleReaper => "double-reaper",
            Self::LostAcknowledgement => "lost-acknowledgement",
            Self::FanInRace => "fan-in-race",
            Self::DatabaseAway => "database-away",
        }
    }

    /// Its plot.
    pub const fn title(self) -> &'static str {
        match self {
            Self::LeaseRace => "a worker is taken for dead, and comes back with a result",
            Self::ZombieAdvancer => "an advancer is taken for dead, and comes back with its claim",
            Self::CrashBeforeEffect => "a worker dies before its step has done anything",
            Self::CrashAfterEffect => "a worker dies between its step's effect and the commit",
            Self::DoubleReaper => "two reapers find the same dead worker",
            Self::LostAcknowledgement => "a commit happens, and its answer is lost",
            Self::FanInRace => "the last two branches of a fan-in arrive at once",
            Self::DatabaseAway => "the database goes away before a result is committed",
        }
    }
}

impl FromStr for Drill {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut all = Self::ALL.into_iter();
        all.find(|drill| drill.as_str() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::as_str).join(", ");
            format!("there is no drill `{text}`; there are: {names}")
        })
    }
}

/// One action of an actor.
#[derive(Clone, Debug, Serialize)]
pub struct Event {
    /// Milliseconds since the drill began.
    pub ms: f64,
    /// The actor.
    pub actor: &'static str,
    /// The action, and its result.
    pub what: String,
    /// True if the database refused it.
    pub refused: bool,
}

/// The result of a drill.
#[derive(Clone, Debug, Serialize)]
pub struct Played {
    /// The drill.
    pub drill: Drill,
    /// Its plot.
    pub title: &'static str,
    /// The actions of its actors, in order.
    pub events: Vec<Event>,
    /// The fact that it has proven, in a sentence; none if it has proven none.
    pub shown: Option<String>,
    /// The failure; none, if all is well.
    pub broken: Option<String>,
    /// The number of invariants that were checked afterwards.
    pub invariants: usize,
    /// The rows that break them.
    pub violations: Vec<String>,
}

/// The results of all drills.
#[derive(Clone, Debug, Serialize)]
pub struct DrillReport {
    /// Of this program.
    pub version: &'static str,
    /// The database, and its durability.
    pub database: String,
    /// The drills, as they were played.
    pub drills: Vec<Played>,
}

impl DrillReport {
    /// True if every drill has proven its point.
    pub fn is_sound(&self) -> bool {
        let sound = |played: &Played| played.broken.is_none() && played.violations.is_empty();
        self.drills.iter().all(sound)
    }

    /// The part of the report that is kept.
    pub fn figures(&self, took: Duration) -> DrillFigures {
        let drilled = |played: &Played| {
            let wrong = played.broken.as_ref().or(played.violations.first());
            let text = wrong.or(played.shown.as_ref()).map_or("", String::as_str);
            Drilled::new(played.drill.as_str(), played.title, wrong.is_none(), text)
        };
        DrillFigures {
            version: self.version.to_owned(),
            database: self.database.clone(),
            took_ms: milliseconds(took),
            drills: self.drills.iter().map(drilled).collect(),
        }
    }
}

impl fmt::Display for Played {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.drill.as_str(), self.title)?;
        let width = self.events.iter().map(|event| event.actor.len()).max();
        let width = width.unwrap_or_default();
        for event in &self.events {
            let mark = if event.refused { '✗' } else { ' ' };
            writeln!(
                f,
                "  {:>8.1} ms {mark} {:width$}  {}",
                event.ms, event.actor, event.what
            )?;
        }
        if let Some(broken) = &self.broken {
            writeln!(f, "  BROKEN: {broken}")?;
        }
        for violation in &self.violations {
            writeln!(f, "  BROKEN: {violation}")?;
        }
        if let (Some(shown), true) = (&self.shown, self.violations.is_empty()) {
            let invariants = self.invariants;
            writeln!(f, "  Shown: {shown}; all {invariants} invariants hold.")?;
        }
        Ok(())
    }
}

/// The reason why a drill has not proven its point.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database cannot be used.
    #[error("the database cannot be used")]
    Store(#[from] store::Error),
    /// Nothing could be started.
    #[error("the drill cannot be started")]
    Start(#[from] start::Error),
    /// Signals cannot be read.
    #[error("signals cannot be read")]
    Signals(#[source] std::io::Error),
    /// The failure.
    #[error("{0}")]
    Broken(String),
    /// Ctrl-C.
    #[error("interrupted")]
    Interrupted,
    /// The drill's own schema or file still exists.
    #[error("`{name}` could not be removed; remove it yourself")]
    NotRemoved {
        /// The schema, or the end of the directory's name.
        name: String,
        /// The reason.
        #[source]
        source: store::Error,
    },
}

/// Plays `drills`, reporting each as it ends. Call it from the main thread, with the control
/// signals blocked ([`crate::process::signal::block_early`]).
pub fn run(
    config: &Config,
    drills: &[Drill],
    each: &mut dyn FnMut(&Played),
) -> Result<DrillReport, Error> {
    start::run_local(async { Ok(guarded(config, drills, each).await) })?
}

/// Plays the drills, and cleans up in any case short of SIGKILL.
async fn guarded(
    config: &Config,
    drills: &[Drill],
    each: &mut dyn FnMut(&Played),
) -> Result<DrillReport, Error> {
    let mut signals = Signals::of_single_role().map_err(Error::Signals)?;
    let sandbox = Sandbox::beside(config.database.url.expose(), "drill")?;
    let played = tokio::select! {
        biased;
        () = signals.stop_asked() => Err(Error::Interrupted),
        played = all(&sandbox, drills, each) => played,
    };
    match (played, sandbox.remove().await) {
        (Ok(_), Err(source)) => Err(Error::NotRemoved {
            name: sandbox.name().to_owned(),
            source,
        }),
        (Err(error), Err(left)) => {
            let left = crate::telemetry::chain(&left);
            tracing::warn!(
                error = left,
                name = sandbox.name(),
                "not removed: do it yourself"
            );
            Err(error)
        }
        (played, Ok(())) => played,
    }
}

async fn all(
    sandbox: &Sandbox,
    drills: &[Drill],
    each: &mut dyn FnMut(&Played),
) -> Result<DrillReport, Error> {
    let mut report = DrillReport {
        version: env!("CARGO_PKG_VERSION"),
        database: String::new(),
        drills: Vec::new(),
    };
    for drill in drills {
        let mut conn = sandbox.create().await?;
        report.database = measure::server(&mut conn).await?;
        let stage = Stage::new(sandbox.location().clone());
        let (shown, broken) = match races::play(*drill, &stage).await {
            Ok(shown) => (Some(shown), None),
            Err(Error::Broken(what)) => (None, Some(what)),
            Err(error) => return Err(error),
        };
        let violations = audit::audit(&mut conn, audit::GRACE).await?;
        let violation =
            |v: &audit::Violation| format!("{} {} {}: {}", v.invariant, v.entity, v.id, v.detail);
        let played = Played {
            drill: *drill,
            title: drill.title(),
            events: stage.events(),
            shown,
            broken,
            invariants: INVARIANTS.len(),
            violations: violations.iter().map(violation).collect(),
        };
        each(&played);
        report.drills.push(played);
        conn.close().await;
        sandbox.remove().await?;
    }
    Ok(report)
}
