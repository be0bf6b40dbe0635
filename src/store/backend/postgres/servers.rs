//! The servers of an address, and the choice of the one to work on.
//!
//! Owns: the query that asks a server for its state, the choice among the servers that answer, and what a
//! process remembers about the server that it has worked on. Never: reads the list (`hosts`), or knows the
//! purpose of a connection (`connection`).
//!
//! A list names servers of which one takes writes; tomorrow this may be another one. A process that works on
//! one server opens further connections there. Where it works on none yet, or has lost a connection, it asks
//! all of them at once, and chooses among those that take writes the one with the latest history. PostgreSQL
//! increments a *timeline* with each promotion. This distinguishes an old primary that came back as a server
//! of its own from its heir, as long as both answer, or this process has worked on the heir.

use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgSslMode};
use sqlx::{Connection, Executor, PgConnection, Row as _};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

use super::super::is_loopback;
use super::connection::{connect_error, settings_arrived};
use super::hosts::{Hosts, Wanted};
use super::no_server::{Nobody, Passed, Refusal};
use crate::store::conn::Purpose;
use crate::store::error::{Error, Source};

/// When a server takes writes, the others have this long to answer. It is longer than a handshake
/// across a data centre; a silent host costs a process this much when it starts, and not again.
const OTHERS_WITHIN: Duration = Duration::from_secs(1);

/// The servers of an address. Clones share the server that is remembered.
#[derive(Clone)]
pub struct Servers {
    /// The servers in the order of the address; never empty.
    list: Vec<PgConnectOptions>,
    wanted: Wanted,
    known: Arc<Mutex<Known>>,
}

/// The last server that was the right one.
#[derive(Default)]
struct Known {
    at: Option<usize>,
    /// True where no connection to it was lost since.
    sure: bool,
    history: Option<History>,
}

/// The history of a server: its cluster, and how often a server of that cluster has been promoted.
#[derive(Clone, Debug, PartialEq, Eq)]
struct History {
    system: String,
    timeline: u32,
}

impl History {
    /// True for the same cluster before a promotion that the other history includes. Two different
    /// clusters are not compared.
    fn is_before(&self, other: &Self) -> bool {
        self.system == other.system && self.timeline < other.timeline
    }
}

/// A server's answer about its state.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Answer {
    is_standby: bool,
    only_reads: bool,
    /// `None` where the server does not tell, such as a proxy or a service that keeps its log
    /// elsewhere.
    history: Option<History>,
}

/// Whether a server is the wanted one, for a process that has worked on `known`.
fn judge(wanted: Wanted, answer: &Answer, known: Option<&History>) -> Result<(), Passed> {
    if wanted != Wanted::Any && answer.is_standby {
        return Err(Passed::Standby);
    }
    if wanted == Wanted::ReadWrite && answer.only_reads {
        return Err(Passed::OnlyReads);
    }
    match (&answer.history, known) {
        (Some(its), Some(known)) if its.is_before(known) => {
            Err(Passed::Before(its.timeline, known.timeline))
        }
        _ => Ok(()),
    }
}

/// The best of several suitable servers in this order: the first, or its latest heir.
fn best<'a>(answers: impl IntoIterator<Item = &'a Answer>) -> Option<usize> {
    let mut best: Option<(usize, &Answer)> = None;
    for (at, answer) in answers.into_iter().enumerate() {
        let better = match best.map(|(_, best)| (&best.history, &answer.history)) {
            None => true,
            Some((Some(best), Some(its))) => best.is_before(its),
            Some(_) => false,
        };
        if better {
            best = Some((at, answer));
        }
    }
    best.map(|(at, _)| at)
}

/// The chosen server, and the connection on which it was asked.
pub struct Chosen {
    /// The server.
    pub server: ServerRef,
    /// An open connection to it.
    pub conn: PgConnection,
}

/// The server that a connection leads to, among several.
pub struct ServerRef {
    at: usize,
    known: Arc<Mutex<Known>>,
}

impl ServerRef {
    /// True when another connection has found another server to be the right one. This connection may
    /// otherwise go on reading data that nobody updates any more, or beating where nobody looks.
    pub fn is_left(&self) -> bool {
        locked(&self.known).at.is_some_and(|at| at != self.at)
    }
}

fn locked(known: &Mutex<Known>) -> MutexGuard<'_, Known> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Servers {
    /// The servers of a URL.
    pub fn parse(url: &str) -> Result<Self, String> {
        let hosts = Hosts::parse(url).map_err(|mistake| mistake.message.to_owned())?;
        let options = hosts.urls.iter().map(|url| PgConnectOptions::from_str(url));
        let list = options.map(|options| options.map(protected));
        let list = list.collect::<Result<_, _>>();
        Ok(Self {
            list: list.map_err(|error| error.to_string())?,
            wanted: hosts.wanted,
            known: Arc::default(),
        })
    }

    /// The only server, where there is nothing to choose.
    pub fn only(&self) -> Option<&PgConnectOptions> {
        match self.list.as_slice() {
            [only] if self.wanted == Wanted::Any => Some(only),
            _ => None,
        }
    }

    /// The options of a chosen server.
    pub fn options(&self, server: &ServerRef) -> &PgConnectOptions {
        &self.list[server.at]
    }

    /// The name of the database on this host, independent of the order of the list. Contains no
    /// secret.
    pub fn identity(&self) -> String {
        let places = match self.list.as_slice() {
            [only] if only.get_host().contains(':') => place(only),
            [only] => format!("{}:{}", only.get_host(), only.get_port()),
            several => {
                let mut places: Vec<String> = several.iter().map(place).collect();
                places.sort_unstable();
                places.dedup();
                places.join(",")
            }
        };
        let first = &self.list[0];
        format!(
            "postgres:{places}/{}?{}",
            first.get_database().unwrap_or(first.get_username()),
            first.get_options().unwrap_or_default(),
        )
    }

    /// Host and port of the server last worked on; none where there is only one.
    pub fn current(&self) -> Option<String> {
        self.known().at.map(|at| place(&self.list[at]))
    }

    /// A connection was lost: independent of which server it led to, another one may be the right
    /// one by now.
    pub fn doubt(&self) {
        self.known().sure = false;
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        locked(&self.known)
    }

    /// The server last worked on, and the one to ask before the others.
    fn begins_with(&self) -> (Option<usize>, Option<usize>) {
        let known = self.known();
        let first = known.at.filter(|_| known.sure && self.list.len() > 1);
        (known.at, first)
    }

    /// Connects to the right server, within this time, each attempt with the settings that
    /// `configured` adds.
    ///
    /// # Errors
    /// `Configured` where none of them can ever be used, `Unavailable` in all other cases.
    pub async fn choose(
        &self,
        configured: impl Fn(&PgConnectOptions) -> PgConnectOptions,
        purpose: Purpose,
        within: Duration,
    ) -> Result<Chosen, Error> {
        let until = Instant::now() + within;
        let mut refused: Vec<(usize, Refusal)> = Vec::new();
        let (last, first) = self.begins_with();
        if let Some(at) = first {
            let asked = asked(configured(&self.list[at]), purpose, self.wanted);
            // The other half of the time is for the other servers.
            match timeout(within / 2, asked).await {
                Ok(Ok((conn, answer))) => match self.take(at, &answer) {
                    Ok(server) => return Ok(Chosen { server, conn }),
                    Err(passed) => refused.push((at, Refusal::Passed(passed))),
                },
                Ok(Err(error)) => refused.push((at, Refusal::Failed(error))),
                Err(_) => refused.push((at, Refusal::Silent)),
            }
        }
        let others = (0..self.list.len()).filter(|at| Some(*at) != first);
        let mut asking = JoinSet::new();
        for at in others.clone() {
            let asked = asked(configured(&self.list[at]), purpose, self.wanted);
            asking.spawn(async move { (at, asked.await) });
        }
        let mut found: Vec<(usize, PgConnection, Answer)> = Vec::new();
        let mut waits = until;
        while let Ok(Some(joined)) = timeout_at(waits, asking.join_next()).await {
            match joined.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic())) {
                (at, Err(error)) => refused.push((at, Refusal::Failed(error))),
                (at, Ok((conn, answer))) => {
                    let known = self.known().history.clone();
                    match judge(self.wanted, &answer, known.as_ref()) {
                        Ok(()) => {
                            found.push((at, conn, answer));
                            waits = until.min(Instant::now() + OTHERS_WITHIN).min(waits);
                        }
                        Err(passed) => refused.push((at, Refusal::Passed(passed))),
                    }
                }
            }
        }
        // Of two servers that cannot be told apart, the one last worked on is still right.
        found.sort_unstable_by_key(|(at, ..)| (Some(*at) != last, *at));
        while let Some(best) = best(found.iter().map(|(.., answer)| answer)) {
            let (at, conn, answer) = found.remove(best);
            match self.take(at, &answer) {
                Ok(server) => return Ok(Chosen { server, conn }),
                // Another connection of this process has just found this server's heir.
                Err(passed) => refused.push((at, Refusal::Passed(passed))),
            }
        }
        for at in others {
            if !refused.iter().any(|(other, _)| *other == at) {
                refused.push((at, Refusal::Silent));
            }
        }
        Err(self.nobody(refused))
    }

    /// Checks the chosen server again, on another connection to it.
    pub async fn confirm<C>(
        &self,
        server: &ServerRef,
        conn: &mut C,
        purpose: Purpose,
    ) -> Result<(), Error>
    where
        for<'c> &'c mut C: Executor<'c, Database = sqlx::Postgres>,
    {
        let asked = ask(conn, purpose, self.wanted).await;
        let answer = asked.map_err(|error| Error::unavailable(Source::Postgres(error)))?;
        let taken = self.take(server.at, &answer);
        let passed = |passed| self.nobody(vec![(server.at, Refusal::Passed(passed))]);
        taken.map(drop).map_err(passed)
    }

    /// Remembers a server, unless a later one was found meanwhile.
    fn take(&self, at: usize, answer: &Answer) -> Result<ServerRef, Passed> {
        let mut known = self.known();
        judge(self.wanted, answer, known.history.as_ref())?;
        // Where any server will do, the order of the list decides each time.
        if self.wanted != Wanted::Any {
            (known.at, known.sure) = (Some(at), true);
            if answer.history.is_some() {
                known.history.clone_from(&answer.history);
            }
        }
        let known = Arc::clone(&self.known);
        Ok(ServerRef { at, known })
    }

    fn nobody(&self, mut refused: Vec<(usize, Refusal)>) -> Error {
        refused.sort_unstable_by_key(|(at, _)| *at);
        // Where no server of the address can be used, a person has to correct it.
        let configured = |(_, refusal): &(usize, Refusal)| {
            matches!(refusal, Refusal::Failed(sqlx::Error::Configuration(_)))
        };
        if refused.len() == self.list.len()
            && refused.iter().all(configured)
            && let Some((_, Refusal::Failed(error))) = refused.pop()
        {
            return connect_error(error);
        }
        let named = |(at, refusal)| (place(&self.list[at]), refusal);
        Error::unavailable(Source::Servers(Nobody {
            wanted: self.wanted,
            refused: refused.into_iter().map(named).collect(),
        }))
    }
}

/// A server on another host proves its identity, unless the address or `PGSSLMODE` says otherwise: the driver's own modes
/// go on without TLS where somebody on the way refuses it, and hand over the password. The driver takes an IPv6 address in
/// brackets for a name.
fn protected(options: PgConnectOptions) -> PgConnectOptions {
    let bare = options.get_host().strip_prefix('[');
    let bare = bare.and_then(|host| host.strip_suffix(']'));
    let options = match bare.map(str::to_owned) {
        Some(host) => options.host(&host),
        None => options,
    };
    let host = options.get_host();
    let is_here = options.get_socket().is_some() || host.starts_with('/') || is_loopback(host);
    match options.get_ssl_mode() {
        PgSslMode::Allow | PgSslMode::Prefer if !is_here => options.ssl_mode(PgSslMode::VerifyFull),
        _ => options,
    }
}

/// Host and port, as people write them.
fn place(options: &PgConnectOptions) -> String {
    let port = options.get_port();
    match options.get_socket() {
        Some(socket) => format!("{}:{port}", socket.display()),
        None => match options.get_host() {
            host if host.contains(':') && !host.starts_with('[') => format!("[{host}]:{port}"),
            host => format!("{host}:{port}"),
        },
    }
}

async fn asked(
    options: PgConnectOptions,
    purpose: Purpose,
    wanted: Wanted,
) -> Result<(PgConnection, Answer), sqlx::Error> {
    let mut conn = PgConnection::connect_with(&options).await?;
    settings_arrived(&mut conn).await?;
    let answer = ask(&mut conn, purpose, wanted).await?;
    Ok((conn, answer))
}

/// Asks a server for its state. Sends nothing where any server will do.
async fn ask<C>(conn: &mut C, purpose: Purpose, wanted: Wanted) -> Result<Answer, sqlx::Error>
where
    for<'c> &'c mut C: Executor<'c, Database = sqlx::Postgres>,
{
    const STATE: &str =
        "SELECT pg_is_in_recovery(), current_setting('transaction_read_only') = 'on'";
    // A standby has the history of its primary.
    const HISTORY: &str = "
        SELECT CAST(system_identifier AS text), left(pg_walfile_name(pg_current_wal_lsn()), 8)
          FROM pg_control_system()";
    let mut answer = Answer {
        is_standby: false,
        only_reads: false,
        history: None,
    };
    if wanted == Wanted::Any {
        return Ok(answer);
    }
    let row = conn.fetch_one(sqlx::raw_sql(STATE)).await?;
    let is = |at: usize| row.try_get_unchecked::<&str, _>(at).map(|text| text == "t");
    answer.is_standby = is(0)?;
    // A page reads only, by its own setting.
    answer.only_reads = is(1)? && purpose != Purpose::Page;
    if answer.is_standby {
        return Ok(answer);
    }
    answer.history = match conn.fetch_one(sqlx::raw_sql(HISTORY)).await {
        Ok(row) => {
            let timeline = u32::from_str_radix(row.try_get_unchecked(1)?, 16);
            let system = row.try_get_unchecked(0)?;
            timeline.ok().map(|timeline| History { system, timeline })
        }
        // The server speaks the protocol, but has no such functions, or denies them to us.
        Err(sqlx::Error::Database(_)) => None,
        Err(error) => return Err(error),
    };
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::super::super::UNREACHED;
    use super::*;
    use crate::store::patience::{LEASE, Patience};
    use crate::telemetry;

    fn history(system: &str, timeline: u32) -> Option<History> {
        let system = system.to_owned();
        Some(History { system, timeline })
    }

    fn primary(history: Option<History>) -> Answer {
        Answer {
            is_standby: false,
            only_reads: false,
            history,
        }
    }

    #[test]
    fn a_server_on_another_host_proves_its_identity_unless_the_address_says_otherwise() {
        for (url, mode) in [
            ("postgres://u@db/d", PgSslMode::VerifyFull),
            ("postgres://u@10.0.0.1:5433/d", PgSslMode::VerifyFull),
            ("postgres://u@localhost.example/d", PgSslMode::VerifyFull),
            ("postgres://u@db/d?sslmode=prefer", PgSslMode::VerifyFull),
            ("postgres://u@db/d?sslmode=disable", PgSslMode::Disable),
            ("postgres://u@db/d?sslmode=require", PgSslMode::Require),
            ("postgres://u@db/d?sslmode=verify-ca", PgSslMode::VerifyCa),
            ("postgres://u@localhost/d", PgSslMode::Prefer),
            ("postgres://u@127.0.0.1/d", PgSslMode::Prefer),
            ("postgres://u@[::1]/d", PgSslMode::Prefer),
            ("postgres://u@[::ffff:127.0.0.1]/d", PgSslMode::Prefer),
            ("postgres://u@LocalHost./d", PgSslMode::Prefer),
            ("postgres://u@[2001:db8::1]/d", PgSslMode::VerifyFull),
            (
                "postgres:///d?host=/run/postgresql&user=u",
                PgSslMode::Prefer,
            ),
        ] {
            let servers = Servers::parse(url).unwrap_or_else(|error| panic!("{url}: {error}"));
            let found = servers.list[0].get_ssl_mode();
            assert_eq!(format!("{found:?}"), format!("{mode:?}"), "{url}");
        }
        let bracketed = Servers::parse("postgres://u@[::1]:5433/d").expect("an address");
        assert_eq!(bracketed.list[0].get_host(), "::1");
        assert!(bracketed.identity().contains("[::1]:5433"));
        let several = Servers::parse("postgres://u@127.0.0.1,db/d").expect("two hosts");
        let modes = several
            .list
            .iter()
            .map(|it| format!("{:?}", it.get_ssl_mode()));
        assert_eq!(modes.collect::<Vec<_>>(), ["Prefer", "VerifyFull"]);
    }

    #[test]
    fn a_standby_what_only_reads_and_an_old_primary_are_passed_over() {
        let known = history("a", 2);
        let known = known.as_ref();
        let standby = Answer {
            is_standby: true,
            only_reads: true,
            history: None,
        };
        let only_reads = Answer {
            only_reads: true,
            ..primary(history("a", 3))
        };
        for (wanted, standby_is, only_reads_is) in [
            (
                Wanted::ReadWrite,
                Err(Passed::Standby),
                Err(Passed::OnlyReads),
            ),
            (Wanted::Primary, Err(Passed::Standby), Ok(())),
            (Wanted::Any, Ok(()), Ok(())),
        ] {
            assert_eq!(judge(wanted, &standby, known), standby_is, "{wanted:?}");
            assert_eq!(judge(wanted, &only_reads, known), only_reads_is);
            assert_eq!(judge(wanted, &primary(None), known), Ok(()));
        }
        for (its, known, judged) in [
            (history("a", 1), history("a", 2), Err(Passed::Before(1, 2))),
            (history("a", 2), history("a", 2), Ok(())),
            (history("a", 11), history("a", 2), Ok(())),
            // Other clusters are not compared, and neither are unknown histories.
            (history("b", 1), history("a", 2), Ok(())),
            (history("a", 1), None, Ok(())),
            (None, history("a", 2), Ok(())),
        ] {
            let answer = primary(its);
            assert_eq!(judge(Wanted::ReadWrite, &answer, known.as_ref()), judged);
        }
    }

    #[test]
    fn of_several_that_take_writes_the_first_is_chosen_or_its_latest_heir() {
        for (histories, chosen) in [
            (vec![], None),
            (vec![None, None], Some(0)),
            (vec![history("a", 1), history("a", 1)], Some(0)),
            (vec![history("a", 1), history("a", 2)], Some(1)),
            (
                vec![history("a", 2), history("a", 1), history("a", 3)],
                Some(2),
            ),
            (vec![history("a", 1), history("b", 2)], Some(0)),
            (
                vec![history("a", 1), history("b", 9), history("a", 2)],
                Some(2),
            ),
            (vec![None, history("a", 2)], Some(0)),
            (vec![history("a", 1), None, history("a", 2)], Some(2)),
        ] {
            let answers: Vec<Answer> = histories.into_iter().map(primary).collect();
            assert_eq!(best(&answers), chosen, "{answers:?}");
        }
    }

    #[test]
    fn a_process_that_has_worked_on_the_heir_does_not_go_back() {
        let servers = Servers::parse("postgres://h1,h2/d").expect("a list");
        assert_eq!(servers.current(), None);
        let first = servers
            .take(0, &primary(history("a", 1)))
            .expect("a server");
        assert_eq!(servers.current().as_deref(), Some("h1:5432"));
        assert!(!first.is_left());
        let heir = servers
            .take(1, &primary(history("a", 2)))
            .expect("a server");
        // Connections to the first server have to follow.
        assert!(first.is_left() && !heir.is_left());
        servers.doubt();
        let back = servers.clone().take(0, &primary(history("a", 1)));
        assert_eq!(back.err(), Some(Passed::Before(1, 2)));
        assert_eq!(servers.current().as_deref(), Some("h2:5432"));
        assert!(first.is_left() && !heir.is_left());
        // Where any server will do, nothing is remembered.
        let servers = Servers::parse("postgres://h1,h2/d?target_session_attrs=any");
        let servers = servers.expect("a list");
        let [one, other] = [0, 1].map(|at| servers.take(at, &primary(None)).expect("a server"));
        assert_eq!(servers.current(), None);
        assert!(!one.is_left() && !other.is_left());
    }

    #[test]
    fn the_name_of_a_deployment_is_the_same_for_every_order_of_its_list() {
        let identity = |url: &str| Servers::parse(url).expect(url).identity();
        let name = "postgres:[::1]:7,h1:5432,h2:6/d?-c a=b";
        for url in [
            "postgres://u:p@h1,h2:6,[::1]:7/d?options=-c%20a=b",
            "postgres://u@[::1]:7,h2:6,h1:5432/d?options=-c%20a=b&target_session_attrs=primary",
            "postgres://u@/d?host=h2,h1,::1&port=6,5432,7&options=-c%20a=b",
            "postgres://u@h1,h2:6,h1:5432,[::1]:7/d?options=-c%20a=b",
        ] {
            assert_eq!(identity(url), name, "{url}");
        }
        assert_eq!(
            identity("postgres:///d?host=/run/b,/run/a"),
            "postgres:/run/a:5432,/run/b:5432/d?"
        );
        // With one host, the identity is as it always was.
        for url in ["postgres://u:p@h/d", "postgres://h,h/d"] {
            assert_eq!(identity(url), "postgres:h:5432/d?", "{url}");
        }
        assert_eq!(identity("postgres://u@[::1]:6"), "postgres:[::1]:6/u?");
    }

    #[tokio::test]
    async fn where_no_server_is_the_one_each_is_named_with_its_reason_and_no_password() {
        let url = "postgres://u:s3cret@127.0.0.1:1,127.0.0.1:2/d";
        let servers = Servers::parse(url).expect("a list");
        let chosen = servers.choose(Clone::clone, Purpose::Query, LEASE).await;
        let error = chosen.err().expect("nobody listens there");
        let text = telemetry::chain(&error);
        let begin =
            "the database cannot be reached: no server of the list takes writes: 127.0.0.1:1: ";
        assert!(text.starts_with(begin), "{text}");
        assert!(text.contains("; 127.0.0.1:2: "), "{text}");
        assert!(!text.contains("s3cret"), "{text}");
        assert_eq!(error.remedy(), Some(UNREACHED));
    }

    #[test]
    fn what_is_in_the_way_decides_about_the_remedy() {
        let servers = Servers::parse("postgres://h1,h2/d").expect("a list");
        let refused = || Refusal::Failed(sqlx::Error::PoolTimedOut);
        for (refusals, said, remedy) in [
            (
                [Refusal::Passed(Passed::Standby), refused()],
                "the database cannot be used: no server of the list takes writes: h1:5432: it is a standby; h2:5432: ",
                "promote a standby",
            ),
            (
                [Refusal::Silent, refused()],
                "the database cannot be reached: no server of the list takes writes: h1:5432: no answer in time; ",
                "the server is running",
            ),
            (
                [refused(), Refusal::Passed(Passed::Before(1, 2))],
                "h2:5432: it is an old primary, on timeline 1, and this process has worked on timeline 2",
                "stop the old primary",
            ),
            (
                [refused(), Refusal::Passed(Passed::OnlyReads)],
                "h2:5432: default_transaction_read_only is on there",
                "promote a standby",
            ),
        ] {
            let error = servers.nobody(refusals.into_iter().enumerate().rev().collect());
            let text = telemetry::chain(&error);
            assert!(text.contains(said), "{text}");
            assert!(error.remedy().is_some_and(|it| it.contains(remedy)));
            assert!(error.is_unavailable());
        }
        // No server of the list can ever be used: a person has to correct that.
        let pooler = || Refusal::Failed(sqlx::Error::Configuration("a pooler".into()));
        let error = servers.nobody(vec![(0, pooler()), (1, pooler())]);
        assert!(matches!(error, Error::Configured(_)), "{error:?}");
        let error = servers.nobody(vec![(0, pooler()), (1, refused())]);
        assert!(error.is_unavailable(), "{error:?}");
    }

    /// Enough time for two hosts of which one lets it run out.
    const WITHIN: Duration = Duration::from_secs(6);

    /// Packets to this host may vanish: it neither answers nor refuses.
    #[tokio::test]
    async fn a_host_that_says_nothing_keeps_nobody_from_the_one_that_does() {
        let url = std::env::var("DUCTWORK_TEST_POSTGRES_URL");
        let url = url.expect("DUCTWORK_TEST_POSTGRES_URL: scripts/test starts a server");
        let listening = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let silent = listening.local_addr().expect("an address");
        let (begin, rest) = url.split_once('@').expect("a user");
        let (place, rest) = rest.split_once('/').expect("a database");
        for list in [format!("{silent},{place}"), format!("{place},{silent}")] {
            let servers = Servers::parse(&format!("{begin}@{list}/{rest}")).expect("a list");
            let patience = Patience::of(Purpose::Lifeline, LEASE);
            let connect = async || {
                let connected = super::super::connection::Postgres::listen(
                    &servers, "channel", patience, WITHIN,
                );
                connected.await.map(drop)
            };
            connect().await.expect("a connection");
            assert_eq!(servers.current().as_deref(), Some(place));
            // The silent host does no harm either when it was the right one, whether or not that is
            // in doubt.
            let right = servers.known().at.expect("one of two");
            for sure in [true, false] {
                let at = Some(1 - right);
                *servers.known() = Known {
                    at,
                    sure,
                    history: None,
                };
                connect().await.expect("a connection");
                assert_eq!(servers.current().as_deref(), Some(place));
            }
        }
        drop(listening);
    }
}
