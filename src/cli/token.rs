//! `token` and `console link`: who may use the console from elsewhere.

use std::net::IpAddr;
use std::time::Duration;

use serde_json::json;

use crate::machine::letters::{form_of_a_name, is_name};
use crate::model::{Scope, TokenKind};
use crate::problem::Problem;
use crate::secret::Secret;
use crate::store::token::{self, Listed, NewToken};
use crate::store::{Conn, Error, Purpose, query};
use crate::time;
use crate::web;

use super::exit::Failure;
use super::follow::say;
use super::live::counted;
use super::out::{self, Cell, clean};
use super::person;
use super::setup::{self, CliContext};

/// The number of tokens that are read at once.
const PAGE: usize = 1_000;

/// The number of characters of a token's text that its list shows.
const LETTERS: usize = 60;

/// The time within which a link must be opened.
const LINK_VALID: Duration = Duration::from_secs(10 * 60);

/// Make, list and revoke the tokens of the console's visitors.
#[derive(Debug, clap::Args)]
pub struct Token {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Make a token, and print it: it is shown only once
    #[command(before_long_help = "Examples:
  ductworkd token create prometheus                     # it reads
  ductworkd token create shop --scope operate --pipeline Order --expires 90d
  ductworkd token create support --no-payloads   # no inputs, no outputs
  curl -H \"Authorization: Bearer $TOKEN\" http://127.0.0.1:9410/api/v1/runs
")]
    Create(Create),
    /// List tokens, and the sessions of browsers
    List,
    /// End a token, and all sessions opened with it, for good
    Revoke {
        /// The public part of the token, the second of its three parts; or that of a used link, to end the
        /// sessions that it opened
        id: String,
    },
}

#[derive(Debug, clap::Args)]
struct Create {
    /// The person or program that it is for; actions are recorded under this name
    name: String,
    /// Its rights: read, operate (trigger, revive, cancel, resume) or admin
    #[arg(long, default_value = "read", value_parser = scope)]
    scope: Scope,
    /// Only this pipeline; may be given several times
    #[arg(long = "pipeline", value_name = "PIPELINE")]
    pipelines: Vec<String>,
    /// It shows no inputs, outputs or logs of runs
    #[arg(long)]
    no_payloads: bool,
    /// How long it is valid, such as 90d [default: until it is revoked]
    #[arg(long, value_name = "DURATION", value_parser = super::duration_in_units)]
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
                    setup::exists_or_is_named(&config)?;
                    let mut conn = setup::connect_or_create(&config, Purpose::Engine).await?;
                    for pipeline in wanted.pipelines.iter().filter(|it| !it.is_empty()) {
                        setup::known(&mut conn, &config, cli, pipeline).await?;
                    }
                    create(cli, &mut conn, wanted).await
                }
                Verb::List => {
                    let mut conn = setup::connect(&config, Purpose::Query).await?;
                    let all = all(&mut conn).await?;
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
    if !is_name(&wanted.name) {
        let problem = Problem::new(form_of_a_name());
        let help = "name the person or the program that the token is for: `shop`";
        return Err(Failure::usage(problem.help(help)));
    }
    if wanted.pipelines.iter().any(String::is_empty) {
        let problem = Problem::new("the name of a pipeline is empty");
        let help = "name one, or leave `--pipeline` out for a token for all pipelines";
        return Err(Failure::usage(problem.help(help)));
    }
    if wanted.expires.is_some_and(|it| it.is_zero()) {
        let problem = Problem::new("a token that expires at once is of no use");
        return Err(Failure::usage(
            problem.help("write, for example, `--expires 90d`"),
        ));
    }
    let only = Some(wanted.pipelines.as_slice()).filter(|it| !it.is_empty());
    let secret = secret()?;
    let new = NewToken {
        id: secret.id(),
        digest: &secret.digest(),
        kind: TokenKind::Token,
        name: &wanted.name,
        scope: wanted.scope,
        pipelines: only,
        payloads: !wanted.no_payloads,
        by: &person::actor(None)?.name,
        valid: wanted.expires,
        parent: None,
    };
    let before = namesakes(conn, &wanted.name).await?;
    token::create(conn, &new).await?;
    let told = match cli.out.json {
        true => cli.out.value(&json!({
            "id": secret.id(), "token": secret.reveal(), "name": wanted.name, "scope": wanted.scope,
            "pipelines": only, "payloads": new.payloads,
        })),
        false => {
            if let Some(first) = before.first() {
                let (name, n) = (&wanted.name, counted(before.len() as u64, "token"));
                say(&format!(
                    "note: besides this one, {n} with the name {name} can still be used; once nobody uses the older one: \
                     ductworkd token revoke {first}"
                ));
            }
            say("note: the token is shown only this once");
            cli.out.text(&format!("{}\n", secret.reveal()))
        }
    };
    // It is valid, and nobody has seen it.
    told.map_err(|failure| {
        let id = secret.id();
        failure.help(&format!(
            "the token is there, and cannot be shown again: ductworkd token revoke {id}"
        ))
    })
}

fn secret() -> Result<Secret, Failure> {
    Secret::new().map_err(|error| {
        Failure::failed(Problem::new(format!(
            "the kernel gives no random bytes: {error}"
        )))
    })
}

async fn revoke(cli: &CliContext, conn: &mut Conn, id: &str) -> Result<(), Failure> {
    // A whole token serves as well as its public part.
    let public = Secret::read(id).map_or(id.to_owned(), |secret| secret.id().to_owned());
    let public = public.strip_prefix("dw_").unwrap_or(&public).to_owned();
    let revoked = token::revoke(conn, &public).await?;
    if !revoked.itself && revoked.sessions == 0 {
        let message = match token::find(conn, &public).await {
            Ok(Some(link)) if link.kind == TokenKind::Link => {
                format!(
                    "the link {public} was used or revoked before, and no session of it is left"
                )
            }
            // A damaged token counts too.
            Ok(Some(_)) | Err(Error::Corrupt(_)) => {
                format!("the token {public} was revoked before")
            }
            Ok(None) => format!("there is no token `{}`", out::short(&public, LETTERS)),
            Err(error) => return Err(error.into()),
        };
        let problem = Problem::new(message);
        return Err(Failure::failed(
            problem.help("`ductworkd token list` lists them"),
        ));
    }
    if cli.out.json {
        return cli.out.value(&json!({
            "id": public, "revoked": revoked.itself, "sessions": revoked.sessions,
        }));
    }
    let sessions = match revoked.sessions {
        0 => String::new(),
        n => format!(": {} ended", counted(n, "session")),
    };
    cli.out.text(&match revoked.itself {
        true => format!("{public} revoked{sessions}\n"),
        false => format!("{public} was used before{sessions}\n"),
    })
}

/// The valid tokens of this name.
async fn namesakes(conn: &mut Conn, name: &str) -> Result<Vec<String>, Failure> {
    let all = all(conn).await?.into_iter();
    let namesake = |listed: Listed| match listed {
        Listed::Token(it) if it.kind == TokenKind::Token && it.is_valid && it.name == name => {
            Some(it.id)
        }
        _ => None,
    };
    Ok(all.filter_map(namesake).collect())
}

async fn all(conn: &mut Conn) -> Result<Vec<Listed>, Failure> {
    let mut all: Vec<Listed> = Vec::new();
    loop {
        let after = all.last().map_or(String::new(), |it| it.id().to_owned());
        let page = token::page(conn, &after, PAGE).await?;
        let is_last = page.len() < PAGE;
        all.extend(page);
        if is_last {
            return Ok(all);
        }
    }
}

fn list(cli: &CliContext, all: &[Listed], now: i64) -> Result<(), Failure> {
    if cli.out.json {
        let form = |it: &Listed| match it {
            Listed::Token(it) => json!({
                "id": it.id, "kind": it.kind, "name": it.name, "scope": it.scope, "pipelines": it.pipelines,
                "payloads": it.payloads,
                "opened_with": it.parent, "valid": it.is_valid, "damaged": null,
                "created_at": time::rfc3339(it.created_at), "created_by": it.created_by,
                "expires_at": it.expires_at.map(time::rfc3339), "ended_at": it.ended_at.map(time::rfc3339),
            }),
            Listed::Damaged { id, problem, .. } => json!({
                "id": id, "valid": false, "damaged": out::short(problem, 4 * LETTERS),
            }),
        };
        return cli.out.value(&all.iter().map(form).collect::<Vec<_>>());
    }
    if all.is_empty() {
        return cli
            .out
            .text("there are no tokens: `ductworkd token create NAME` makes one\n");
    }
    for listed in all {
        if let Listed::Damaged {
            id,
            problem,
            has_ended: false,
        } = listed
        {
            say(&clean(&format!(
                "note: the token {} lets nobody in, because it cannot be read: {}; `ductworkd token revoke {0}` \
                 ends it for good",
                out::short(id, LETTERS),
                out::short(problem, 4 * LETTERS),
            )));
        }
    }
    let rows: Vec<Vec<Cell>> = all.iter().map(|it| row(cli, it, now)).collect();
    let headings = [
        "ID",
        "KIND",
        "NAME",
        "SCOPE",
        "PIPELINES",
        "STATE",
        "EXPIRES",
        "CREATED",
    ];
    let spare = ["CREATED", "KIND"];
    cli.out
        .text(&cli.out.table_with_ids(&headings, &rows, &spare))
}

fn row(cli: &CliContext, listed: &Listed, now: i64) -> Vec<Cell> {
    let id = Cell::styled(out::short(listed.id(), LETTERS), out::BOLD);
    let it = match listed {
        Listed::Token(it) => it,
        Listed::Damaged { has_ended, .. } => {
            let state = match has_ended {
                true => Cell::styled("damaged, ended", out::DIM),
                false => Cell::styled("damaged", out::BAD),
            };
            let unread = || Cell::new("");
            return vec![id, unread(), unread(), unread(), unread(), state];
        }
    };
    let (state, style) = match (it.is_valid, it.ended_at, it.expires_at) {
        (true, ..) => ("valid", out::GOOD),
        // A link was used, or revoked before.
        (false, Some(_), _) => ("ended", out::DIM),
        (false, None, Some(at)) if at <= now => ("expired", out::DIM),
        // The token or link with which it was opened has ended.
        (false, None, _) => ("ended", out::DIM),
    };
    let pipelines = match it.pipelines.as_deref() {
        None => String::new(),
        Some([]) => "(none)".to_owned(),
        Some(names) => out::short(&names.join(", "), LETTERS),
    };
    let time = |at: Option<i64>| at.map_or(String::new(), |at| cli.out.time(at, now));
    vec![
        id,
        Cell::new(it.kind.as_str()),
        Cell::new(out::short(&it.name, LETTERS)),
        Cell::new(match it.payloads {
            true => it.scope.to_string(),
            false => format!("{}, no payloads", it.scope),
        }),
        Cell::new(pipelines),
        Cell::styled(state, style),
        Cell::new(time(it.expires_at)),
        Cell::new(time(Some(it.created_at))),
    ]
}

/// Print a link that lets one browser in, once
///
/// The link is valid for ten minutes. It lets the browser in for twelve hours.
#[derive(Debug, clap::Args)]
pub struct Link {
    /// Its rights: read, operate or admin
    #[arg(long, default_value = "operate", value_parser = scope)]
    scope: Scope,
    /// The person who uses the browser; actions are recorded under this name [default: your user name and this host]
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
}

impl Link {
    pub fn execute(self, cli: &CliContext) -> Result<(), Failure> {
        let config = cli.config()?;
        let console = &config.console;
        if let (None, Some(socket)) = (console.listen, &console.socket) {
            let message = format!(
                "the console listens only at {}",
                clean(&socket.display().to_string())
            );
            let help = "a browser that reaches this socket needs no link: `ssh -L 9410:SOCKET HOST` leads to it";
            return Err(Failure::usage(Problem::new(message).help(help)));
        }
        let by = person::actor(self.by)?.name;
        let secret = secret()?;
        let new = NewToken {
            id: secret.id(),
            digest: &secret.digest(),
            kind: TokenKind::Link,
            name: &by,
            scope: self.scope,
            pipelines: None,
            payloads: true,
            by: &by,
            valid: Some(LINK_VALID),
            parent: None,
        };
        setup::exists_or_is_named(&config)?;
        setup::block_on(async {
            let mut conn = setup::connect_or_create(&config, Purpose::Engine).await?;
            token::create(&mut conn, &new).await?;
            let listen = config.console.listen.unwrap_or(web::LISTEN);
            // A browser that comes through a proxy which names it needs no link, and gains nothing from one.
            let is_named = !console.proxy.from.is_empty();
            if is_named {
                say(
                    "note: the link works only past the reverse proxy, which itself says who its visitors are",
                );
            }
            let base = match outside(&config.console.hosts).filter(|_| !is_named) {
                Some(host) => format!("https://{host}"),
                None => format!("http://{}", web::from_here(listen)),
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

/// The first of the console's further names by which a browser outside may reach it. A proxy with a certificate has a
/// name and not an address, and only the cluster knows the names of a service in Kubernetes, whole or shortened.
fn outside(hosts: &[String]) -> Option<&str> {
    let is_of = |host: &str, service: &str| {
        let rest = service.strip_prefix(host);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    let is_service = |host: &&String| host.ends_with(".svc") || host.contains(".svc.");
    let is_inside = |host: &str| hosts.iter().filter(is_service).any(|it| is_of(host, it));
    let names = hosts.iter().filter(|it| it.parse::<IpAddr>().is_err());
    names.map(String::as_str).find(|it| !is_inside(it))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_leads_to_a_name_that_a_browser_outside_knows() {
        let service = [
            "console",
            "console.work",
            "console.work.svc",
            "console.work.svc.cluster.local",
        ];
        for (more, found) in [
            (&[][..], None),
            (&["10.42.0.7"][..], None),
            (&["10.42.0.7", "fd00::7"][..], None),
            (
                &["10.42.0.7", "ductwork.example.com"][..],
                Some("ductwork.example.com"),
            ),
            (&["ductwork", "ductwork.example.com"][..], Some("ductwork")),
            (&["console.example.com"][..], Some("console.example.com")),
        ] {
            let of = |hosts: &[&str]| hosts.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
            assert_eq!(outside(&of(more)), found, "{more:?}");
            let with_service = [&service[..], more].concat();
            assert_eq!(outside(&of(&with_service)), found, "{with_service:?}");
        }
    }
}
