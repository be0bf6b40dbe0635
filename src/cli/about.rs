//! `schema`, `completions`, `version`: the program's own facts.

use clap::{Command, CommandFactory};
use clap_complete::Shell;
use serde_json::json;

use crate::store::backend::sqlite::connection as sqlite;
use crate::store::migrate::MIGRATIONS;

use super::Cli;
use super::exit::Failure;
use super::setup::CliContext;

const NAME: &str = "ductworkd";

/// Prints a JSON Schema.
#[derive(Debug, clap::Args)]
#[command(before_long_help = "Examples:
  ductworkd schema config > ductwork.schema.json
  ductworkd schema pipeline > pipeline.schema.json

A first line `# yaml-language-server: $schema=ductwork.schema.json` makes editors check the
file as you write it.
")]
pub struct Schema {
    /// The kind of file
    of: Of,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Of {
    /// The configuration
    Config,
    /// A pipeline's file
    Pipeline,
}

/// Prints a completion script.
#[derive(Debug, clap::Args)]
#[command(before_long_help = "Examples:
  mkdir -p ~/.local/share/bash-completion/completions
  ductworkd completions bash \\
    > ~/.local/share/bash-completion/completions/ductworkd
  mkdir -p ~/.zfunc
  ductworkd completions zsh > ~/.zfunc/_ductworkd
")]
pub struct Completions {
    /// The shell
    shell: Shell,
}

/// Prints the version.
#[derive(Debug, clap::Args)]
pub struct Version {}

impl Schema {
    pub fn execute(self, cli: &CliContext) -> Result<(), Failure> {
        cli.out.value(&match self.of {
            Of::Config => crate::config::json_schema(),
            Of::Pipeline => crate::definition::schema::json_schema(),
        })
    }
}

impl Completions {
    pub fn execute(self, cli: &CliContext) -> Result<(), Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut visible(), NAME, &mut script);
        cli.out.text(&String::from_utf8_lossy(&script))
    }
}

/// The command line without the verbs that the program calls itself with.
fn visible() -> Command {
    let all = Cli::command();
    let verbs = all.get_subcommands().filter(|verb| !verb.is_hide_set());
    let command = Command::new(NAME).version(env!("CARGO_PKG_VERSION"));
    let command = command.args(all.get_arguments().cloned());
    command.subcommands(verbs.cloned())
}

impl Version {
    pub fn execute(self, cli: &CliContext) -> Result<(), Failure> {
        let version = env!("CARGO_PKG_VERSION");
        let sqlite = sqlite::version();
        let sqlite = format!(
            "{}.{}.{}",
            sqlite / 1_000_000,
            sqlite / 1_000 % 1_000,
            sqlite % 1_000
        );
        match cli.out.json {
            true => cli.out.value(&json!({
                "version": version,
                "schema": MIGRATIONS.last().map(|migration| migration.version),
                "sqlite": sqlite,
            })),
            false => cli.out.text(&format!("ductworkd {version}\n")),
        }
    }
}
