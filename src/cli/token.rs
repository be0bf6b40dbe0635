//! `token` and `console link`: who may use the console from elsewhere.

use std::time::Duration;

use serde_json::json;

use crate::model::{Scope, TokenKind};
use crate::problem::Problem;
use crate::secret::Secret;
use crate::store::token::{self, NewToken, Token as Stored};
use crate::store::{Conn, Purpose, query};
use crate::time;
use crate::web;

use super::exit::Failure;
use super::out::{self, Cell, clean};
use super::person;
use super::setup::{self, CliContext};

/// Tokens that are listed.
const LISTED: usize = 1_000;

/// A link is to be opened within so long.
const LINK_VALID: Duration = Duration::from_secs(10 * 60);

/// Make, list and revoke the tokens of the console's visitors.
#[derive(Debug, clap::Args)]
pub struct Token {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Make a token, and print it: it is shown this once
    #[command(before_long_help = "Examples:
  ductworkd token create prometheus                     # it reads
  ductworkd token create shop --scope operate --pipeline Order --expires 90d
  curl -H \"Authorization: Bearer $TOKEN\" http://127.0.0.1:9410/api/v1/runs
")]
    Create(Create),
    /// List tokens, and the sessions of browsers
    List,
    /// End a token, and all that was opened with it, for good
    Revoke {
        /// The public part of the token: its second part of three
        id: String,
    },
}

#[derive(Debug, clap::Args)]
struct Create {
    /// The person or the program that it is for, as actions are recorded
    name: String,
    /// Its rights: read, operate (trigger, revive, cancel, answer) or admin
    #[arg(long, default_value = "read", value_parser = scope)]
    scope: Scope,
    /// Only this pipeline; may be given several times
    #[arg(long = "pipeline", value_name = "PIPELINE")]
    pipelines: Vec<String>,
    /// It holds for so long, such as 90d [default: until it is revoked]
    #[arg(long, value_name = "DURATION", value_parser = super::duration)]
    expires: Option<Duration>,
}

fn scope(text: &str) -> Result<Scope, String> {
    text.parse()
        .map_err(|_| "write `read`, `operate` or `admin`".to_owned())
}

impl Token {
    pub fn execute(self, cli: &CliContext) -> Result<(), Failure> {
        let config = cli.config()?;
        setup::block_on(async {
            match self.verb {
                Verb::Create(wanted) => {
                    let mut conn = setup::connect_or_create(&config, Purpose::Engine).await?;
                    create(cli, &mut conn, wanted).await
                }
                Verb::List => {
                    let mut conn = setup::connect(&config, Purpose::Query).await?;
                    let all = token::all(&mut conn, LISTED).await?;
                    let now = query::now(&mut conn).await?;
                    list(cli, &all, now)
                }
                Verb::Revoke { id } => {
                    let mut conn = setup::connect(&config, Purpose::Engine).await?;
                    revoke(cli, &mut conn, &id).await
                }
            }
        })
    }
}

async fn create(cli: &CliContext, conn: &mut Conn, wanted: Create) -> Result<(), Failure> {
    if !person::is_name(&wanted.name) {
        let problem = Problem::new("this is no name for a token");
        let help = "name the person or the program that it is for, in one line: `shop`";
        return Err(Failure::usage(problem.help(help)));
    }
    if wanted.expires.is_some_and(|it| it.is_zero()) {
        let problem = Problem::new("a token that holds for no time is of no use");
        return Err(Failure::usage(problem.help("write `--expires 90d`, say")));
    }
    let secret = secret()?;
    let new = NewToken {
        id: secret.id(),
        digest: &secret.digest(),
        kind: TokenKind::Token,
        name: &wanted.name,
        scope: wanted.scope,
        pipelines: &wanted.pipelines,
        by: &person::actor(None)?.name,
        valid: wanted.expires,
        parent: None,
    };
    token::create(conn, &new).await?;
    match cli.out.json {
        true => cli.out.value(&json!({
            "id": secret.id(), "token": secret.reveal(), "name": wanted.name, "scope": wanted.scope,
            "pipelines": wanted.pipelines,
        })),
        false => {
            super::follow::say("note: the token is shown this once");
            cli.out.text(&format!("{}\n", secret.reveal()))
        }
    }
}

fn secret() -> Result<Secret, Failure> {
    Secret::new().map_err(|error| {
        Failure::failed(Problem::new(format!(
            "the kernel gives no random bytes: {error}"
        )))
    })
}

async fn revoke(cli: &CliContext, conn: &mut Conn, id: &str) -> Result<(), Failure> {
    // All of a token is as good as its public part.
    let public = Secret::read(id).map_or(id.to_owned(), |secret| secret.id().to_owned());
    let public = public.strip_prefix("dw_").unwrap_or(&public).to_owned();
    if !token::end(conn, &public).await? {
        let message = match token::find(conn, &public).await? {
            Some(link) if link.kind == TokenKind::Link => format!(
                "the link {public} was used or revoked before; a session that it opened is revoked by its own id"
            ),
            Some(_) => format!("the token {public} was revoked before"),
            None => format!("there is no token `{}`", clean(&public)),
        };
        let problem = Problem::new(message);
        return Err(Failure::failed(
            problem.help("`ductworkd token list` lists them"),
        ));
    }
    match cli.out.json {
        true => cli.out.value(&json!({ "id": public, "revoked": true })),
        false => cli.out.text(&format!("{public} revoked\n")),
    }
}

fn list(cli: &CliContext, all: &[Stored], now: i64) -> Result<(), Failure> {
    if cli.out.json {
        let form = |it: &Stored| {
            json!({
                "id": it.id, "kind": it.kind, "name": it.name, "scope": it.scope, "pipelines": it.pipelines,
                "valid": it.is_valid, "created_at": time::rfc3339(it.created_at), "created_by": it.created_by,
                "expires_at": it.expires_at.map(time::rfc3339), "ended_at": it.ended_at.map(time::rfc3339),
            })
        };
        return cli.out.value(&all.iter().map(form).collect::<Vec<_>>());
    }
    if all.is_empty() {
        return cli
            .out
            .text("there are no tokens: `ductworkd token create NAME` makes one\n");
    }
    if all.len() == LISTED {
        super::follow::say(&format!("note: these are the first {LISTED}, by their ids"));
    }
    let row = |it: &Stored| {
        let (state, style) = match (it.is_valid, it.ended_at) {
            (true, _) => ("valid", out::GOOD),
            (false, Some(_)) if it.kind == TokenKind::Link => ("used", out::DIM),
            (false, Some(_)) => ("ended", out::DIM),
            (false, None) => ("expired", out::DIM),
        };
        let time = |at: Option<i64>| at.map_or(String::new(), |at| cli.out.time(at, now));
        vec![
            Cell::styled(&it.id, out::BOLD),
            Cell::new(it.kind.as_str()),
            Cell::new(clean(&it.name)),
            Cell::new(it.scope.as_str()),
            Cell::new(clean(&it.pipelines.join(", "))),
            Cell::styled(state, style),
            Cell::new(time(Some(it.created_at))),
            Cell::new(time(it.expires_at)),
        ]
    };
    let rows: Vec<Vec<Cell>> = all.iter().map(row).collect();
    let headings = [
        "ID",
        "KIND",
        "NAME",
        "SCOPE",
        "PIPELINES",
        "STATE",
        "CREATED",
        "EXPIRES",
    ];
    cli.out.text(&out::table(&headings, &rows))
}

/// Print a link that lets one browser in, once
///
/// It holds for ten minutes. The browser is let in for twelve hours.
#[derive(Debug, clap::Args)]
pub struct Link {
    /// Its rights: read, operate or admin
    #[arg(long, default_value = "operate", value_parser = scope)]
    scope: Scope,
    /// The person whose browser it is, as actions are recorded [default: your user name and this host]
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
}

impl Link {
    pub fn execute(self, cli: &CliContext) -> Result<(), Failure> {
        let config = cli.config()?;
        let by = person::actor(self.by)?.name;
        let secret = secret()?;
        let new = NewToken {
            id: secret.id(),
            digest: &secret.digest(),
            kind: TokenKind::Link,
            name: &by,
            scope: self.scope,
            pipelines: &[],
            by: &by,
            valid: Some(LINK_VALID),
            parent: None,
        };
        setup::block_on(async {
            let mut conn = setup::connect_or_create(&config, Purpose::Engine).await?;
            token::create(&mut conn, &new).await?;
            let listen = config.console.listen.unwrap_or(web::LISTEN);
            let base = match config.console.hosts.first() {
                Some(host) => format!("https://{host}"),
                None => format!("http://{listen}"),
            };
            let url = format!("{base}/sign-in?link={}", secret.reveal());
            match cli.out.json {
                true => cli
                    .out
                    .value(&json!({ "url": url, "name": by, "scope": self.scope })),
                false => cli.out.text(&format!("{url}\n")),
            }
        })
    }
}
