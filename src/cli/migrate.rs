//! `migrate`: creates or upgrades the schema.

use std::io::Write;
use std::time::Duration;

use serde_json::json;

use crate::store::Purpose;
use crate::store::copy::UNFINISHED;
use crate::store::migrate::{self, MIGRATIONS, Migration};

use super::exit::Failure;
use super::out::{self, Cell};
use super::setup::{self, CliContext};

/// Creates or upgrades the schema. The daemon does so when it starts.
#[derive(Debug, clap::Args)]
#[command(before_long_help = "Examples:
  ductworkd migrate                   # as a step of a deployment
  ductworkd migrate --status
  ductworkd migrate --print > schema.sql
")]
pub struct Migrate {
    /// Show which migrations were applied, and change nothing
    #[arg(long, conflicts_with = "print")]
    status: bool,
    /// Print the SQL, and connect to nothing
    #[arg(long)]
    print: bool,
    /// How long to wait for others who hold locks on Ductwork's tables [default: 60s]
    #[arg(long, value_name = "DURATION", value_parser = super::duration)]
    wait: Option<Duration>,
}

impl Migrate {
    pub fn execute(self, cli: &CliContext) -> Result<(), Failure> {
        let config = cli.config()?;
        let location = config.location()?;
        if self.print {
            return cli.out.text(&migrate::script(location.dialect()));
        }
        setup::block_on(async {
            if self.status {
                setup::exists(&config)?;
            }
            let mut conn = location.connect(Purpose::Query).await?;
            if !self.status {
                setup::note_creation(&mut conn, &config).await?;
                let patience = self.wait.unwrap_or(migrate::PATIENCE);
                // If it is closed, there is nobody to tell.
                let mut report = |waits: &str| drop(writeln!(std::io::stderr(), "{waits}"));
                let done = migrate::migrate_within(&mut conn, patience, &mut report).await?;
                let applied: Vec<i64> = done.iter().map(|migration| migration.version).collect();
                return match (cli.out.json, done.as_slice()) {
                    (true, _) => cli.out.value(&json!({ "applied": applied })),
                    (false, []) => cli.out.text("the schema is up to date\n"),
                    (false, done) => {
                        let one = |migration: &&Migration| {
                            format!("applied {}: {}\n", migration.version, migration.name)
                        };
                        cli.out.text(&done.iter().map(one).collect::<String>())
                    }
                };
            }
            let applied = migrate::applied(&mut conn).await?;
            let unknown =
                |version: &&i64| MIGRATIONS.iter().all(|known| known.version != **version);
            let newer: Vec<i64> = applied.iter().filter(unknown).copied().collect();
            if cli.out.json {
                let one = |migration: &Migration| {
                    json!({
                        "version": migration.version,
                        "name": migration.name,
                        "applied": applied.contains(&migration.version),
                    })
                };
                let newer = newer.iter().map(|version| {
                    json!({
                        "version": version,
                        "name": unknown_name(*version),
                        "applied": *version != UNFINISHED,
                    })
                });
                let all: Vec<serde_json::Value> = MIGRATIONS.iter().map(one).chain(newer).collect();
                return cli.out.value(&all);
            }
            let row = |migration: &Migration| {
                let (word, style) = match applied.contains(&migration.version) {
                    true => ("applied", out::GOOD),
                    false => ("missing", out::BAD),
                };
                vec![
                    Cell::new(migration.version.to_string()),
                    Cell::new(migration.name),
                    Cell::styled(word, style),
                ]
            };
            let newer = newer.iter().map(|version| {
                let name = unknown_name(*version);
                // The mark's number means nothing to anybody.
                let (version, word, style) = match *version {
                    UNFINISHED => ("-".to_owned(), "no migration", out::BAD),
                    _ => (version.to_string(), "applied", out::GOOD),
                };
                vec![
                    Cell::new(version),
                    Cell::new(name),
                    Cell::styled(word, style),
                ]
            });
            let rows: Vec<Vec<Cell>> = MIGRATIONS.iter().map(row).chain(newer).collect();
            cli.out.text(&out::table(&["VERSION", "NAME", ""], &rows))
        })
    }
}

/// The name of a version that this program does not know.
fn unknown_name(version: i64) -> &'static str {
    match version {
        UNFINISHED => "the mark of an incomplete copy: `ductworkd copy` is running, or was ended",
        _ => "of a newer ductworkd",
    }
}
