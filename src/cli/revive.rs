//! `revive`: a halted run goes on as a new one.

use std::io::{BufRead, IsTerminal, Write};

use serde_json::json;

use crate::config::Config;
use crate::definition::Definition;
use crate::definition::difference::differences;
use crate::machine::halt::Obstacle;
use crate::machine::revive::listed;
use crate::machine::why::{INPUT_MAX, trigger_again};
use crate::model::{RunId, RunStatus};
use crate::problem::Problem;
use crate::store::definition::Definitions;
use crate::store::query::{self, Run};
use crate::store::revive::{self, Wanted};
use crate::store::{Conn, Purpose};
use crate::view::word;

use super::exit::Failure;
use super::follow;
use super::nobody;
use super::out::clean;
use super::patiently::waiting;
use super::person;
use super::setup::{self, CliContext};

/// Continues a halted run as a new one.
#[derive(Debug, clap::Args)]
#[command(before_long_help = "Examples:
  ductworkd revive 5d91c07e
  ductworkd revive 5d91c07e --latest   # after the pipeline's file was changed
  ductworkd runs --status halted --limit 1000 --json | \\
    jq -r '.[] | select(.revived_as==null) | .id' | xargs -rn1 ductworkd revive

The new run begins where the old one halted: no completed step runs again, unless the run halted because of its \
output. The new run keeps the definition that the old one was started with; with --latest it continues with the one \
in the configuration, if every step that the run passed through is there in the same place.

The steps of the new run have new idempotency keys. An attempt of the old run that timed out or crashed may have had its \
effect all the same: check that before you revive the run.
")]
pub struct Revive {
    /// The run's id, or four or more of its first or last digits
    run: String,
    /// Continue with the definition that the configuration has now
    #[arg(long)]
    latest: bool,
    /// Begin with an empty context: the values that the steps stored are not copied
    #[arg(long)]
    without_context: bool,
    /// The person who revives it [default: your user name and this host]
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
}

/// The cost of a new run in place of a revival.
const ANEW: &str = "a new run does all work again, with new idempotency keys";

impl Revive {
    pub fn execute(self, cli: &CliContext) -> Result<(), Failure> {
        let config = cli.config()?;
        let by = person::actor(self.by)?;
        setup::block_on(async {
            let mut conn = setup::connect(&config, Purpose::Engine).await?;
            let run = setup::find_run(&mut conn, &self.run).await?;
            let Some(found) = query::run_up_to(&mut conn, run, INPUT_MAX as i64).await? else {
                return Err(setup::no_run(&run.to_string()));
            };
            // This check comes before any question to a person.
            if let Some(next) = found.revived_as {
                let refusal = revive::Revive::AlreadyRevived(next);
                return Err(refused(refusal, &found, &config));
            }
            let latest = match (self.latest, found.status) {
                (true, _) => {
                    let (latest, note) = cli.pipeline(&config, &found.pipeline)?;
                    note.iter().for_each(|note| follow::say(note));
                    Some(Ok(latest))
                }
                (false, RunStatus::Halted) => Some(cli.latest(&config, &found.pipeline)),
                (false, _) => None,
            };
            let mistake = match &latest {
                Some(Err(Obstacle::Mistake(place))) => Some(place),
                _ => None,
            };
            let latest = latest.as_ref().and_then(|latest| latest.as_ref().ok());
            let latest = latest.filter(|latest| latest.digest() != found.definition);
            let mut note = None;
            let mut definition = latest.filter(|_| self.latest);
            if let (Some(latest), None) = (latest, definition) {
                let changed = changed(&mut conn, &found, latest).await?;
                // Nothing that fails here keeps a run from its own definition.
                let obstacle = revive::obstacle(&mut conn, run, latest).await;
                let obstacle = obstacle.unwrap_or(Some(Obstacle::Unknown));
                let is_refused = matches!(obstacle, Some(Obstacle::Disagrees(_)));
                let is_certain = obstacle.is_none();
                match !is_refused && asked() && confirmed(&found.pipeline, &changed, is_certain) {
                    true => definition = Some(latest),
                    false => note = Some((changed, obstacle)),
                }
            }
            let wanted = Wanted {
                definition,
                context: !self.without_context,
                by: Some(&by),
            };
            let revived = revive::revive_as(&mut conn, run, wanted);
            let revived = match waiting("reviving the run", revived).await? {
                revive::Revive::Done(revived) => revived,
                other => return Err(refused(other, &found, &config)),
            };
            let pipeline = &found.pipeline;
            setup::wake(&mut conn, &config.location()?, pipeline).await;
            if let Some((changed, obstacle)) = note {
                let uses = format!(
                    "note: {pipeline} has changed since ({changed}). The new run uses the old definition"
                );
                let again = format!("If it halts again, try: ductworkd revive {revived} --latest");
                follow::say(&match obstacle {
                    Some(Obstacle::Disagrees(obstacles)) => format!(
                        "{uses}, because the new one cannot continue it ({}): --latest would be refused. To use the new \
                         definition, begin anew: {}    # {ANEW}",
                        listed(&obstacles),
                        trigger_again(pipeline, found.short_input().unwrap_or_default(), run)
                    ),
                    Some(_) => {
                        format!("{uses}. {again}    # refused if the new one cannot continue it")
                    }
                    None => format!("{uses}. {again}"),
                });
            }
            if let Some(place) = mistake {
                follow::say(&format!(
                    "note: the new run uses the old definition of {pipeline}: a pipeline's file has a mistake ({}), \
                     which `ductworkd check` explains",
                    clean(place)
                ));
            }
            nobody::note(&mut conn, &config, pipeline).await;
            let told = match cli.out.json {
                true => cli.out.value(&json!({
                    "run_id": revived, "pipeline": pipeline, "revived_from": run,
                    "definition": definition.map_or(found.definition.clone(), Definition::digest),
                })),
                false => cli.out.text(&format!("{revived}\n")),
            };
            told.map_err(|failure| {
                failure.help(&format!(
                    "the run {revived} is there: `ductworkd show {revived}` shows it"
                ))
            })
        })
    }
}

/// The differences between a run's definition and the configuration's.
async fn changed(conn: &mut Conn, run: &Run, latest: &Definition) -> Result<String, Failure> {
    let frozen = Definitions::default().read(conn, &run.definition).await?;
    let found = match frozen {
        Ok(frozen) => differences(&frozen, latest),
        Err(unreadable) => vec![unreadable.to_string()],
    };
    Ok(listed(&found))
}

/// True if there is a person to ask.
fn asked() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// The answer of the person at the terminal. The question goes to standard error: standard output
/// is for the result.
fn confirmed(pipeline: &str, changed: &str, is_certain: bool) -> bool {
    let refused = match is_certain {
        true => "",
        false => " It is refused if it cannot continue the run.",
    };
    eprint!(
        "The definition of {pipeline} has changed since this run started: {changed}.\n\
         Use the new definition (--latest)?{refused} \"No\" keeps the old one. [y/N] "
    );
    let _ = std::io::stderr().flush();
    let mut answer = String::new();
    // An answer that cannot be read is not a yes.
    let _ = std::io::stdin().lock().read_line(&mut answer);
    matches!(answer.trim(), "y" | "Y" | "yes" | "Yes" | "YES")
}

fn refused(refusal: revive::Revive, run: &Run, config: &Config) -> Failure {
    let id: RunId = run.id;
    let again = || trigger_again(&run.pipeline, run.short_input().unwrap_or_default(), id);
    let (message, help) = match refusal {
        revive::Revive::NotHalted(RunStatus::Completed) => (
            format!("the run {id} completed: there is nothing to revive"),
            format!("to do its work once more: {}", again()),
        ),
        revive::Revive::NotHalted(RunStatus::Cancelled) => (
            format!("the run {id} was cancelled: only halted runs are revived"),
            format!("to do its work from the beginning: {}", again()),
        ),
        revive::Revive::NotHalted(RunStatus::Dampened) => (
            format!("the run {id} waits for a person: only halted runs are revived"),
            format!(
                "`ductworkd resume {id}` answers it, and `ductworkd why {id}` says what it asks"
            ),
        ),
        revive::Revive::NotHalted(status) => (
            format!(
                "the run {id} is {}: only halted runs are revived",
                word(status)
            ),
            format!("`ductworkd why {id}` says what it is waiting for"),
        ),
        revive::Revive::AlreadyRevived(next) => (
            format!("the run {id} was already revived as {next}"),
            format!("`ductworkd show {next}` shows it"),
        ),
        revive::Revive::Disagrees(found) => (
            format!(
                "the run {id} cannot go on with the {} of {}: {}",
                run.pipeline,
                config.pipelines_path.display(),
                listed(&found)
            ),
            format!(
                "`ductworkd revive {id}` goes on with the definition that it was started with; to begin anew \
                 with the other: {}    # {ANEW}",
                again()
            ),
        ),
        revive::Revive::Done(_) | revive::Revive::NotFound => {
            return setup::no_run(&id.to_string());
        }
    };
    Failure::failed(Problem::new(message).help(help))
}
