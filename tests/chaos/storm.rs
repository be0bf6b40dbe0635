//! The whole: load, faults for a while, silence, and then the oracle.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ductwork::store::statement::Statement;
use ductwork::store::{Conn, Location, Purpose, migrate};

use crate::aside::{ASIDE, Aside};
use crate::clock::Clock;
use crate::cluster::Cluster;
use crate::dice::Dice;
use crate::disk::Disk;
use crate::fixture::*;
use crate::foreign::{self, ROLES};
use crate::history::{History, Kind, Line, Told};
use crate::mariadb::Mariadb;
use crate::nodes::Nodes;
use crate::oracle::judge;
use crate::people::People;
use crate::plan::{Blow, HOSTS, On, chosen, draw};
use crate::proxy::Proxy;
use crate::recovery::measure;
use crate::scene::{Host, Scene, TAKES};
use crate::server::Server;
use crate::space::Space;
use crate::support::{self, Db};
use crate::triggers::Triggers;
use crate::workload::{MAX_RETRY, SHAPES, STEP};

const SECONDS: &str = "DUCTWORK_CHAOS_SECONDS";
const SEED: &str = "DUCTWORK_CHAOS_SEED";
const DATABASES: &str = "DUCTWORK_CHAOS_DATABASES";

/// The default length of a storm: for a person who waits for it, and in CI. On a cluster every fault of its
/// nodes has occurred by then.
const SHORT: u64 = 20;
const LONG: u64 = 300;
const ON_NODES: u64 = 120;

/// In storms of this many seconds there are at least this many kills, processes that stand still,
/// crashes of the server or blows to nodes, and steps.
const FLOORS: [(u64, usize, usize, usize, usize); 2] =
    [(LONG, 200, 30, 10, 0), (1_800, 1_000, 200, 50, 200_000)];
/// MariaDB completes fewer steps on the same machine.
const FLOORS_ON_MARIADB: [(u64, usize, usize, usize, usize); 2] =
    [(LONG, 200, 30, 10, 0), (1_800, 1_000, 200, 50, 100_000)];
const FLOORS_ON_NODES: [(u64, usize, usize, usize, usize); 3] = [
    (ON_NODES, 70, 10, 8, 0),
    (LONG, 180, 30, 20, 0),
    (1_800, 1_000, 200, 100, 0),
];

/// The number of faults that are printed when a law is broken.
const RECENT: usize = 60;

/// The longest time from the last fault until no work is left.
const DRAIN: Duration = Duration::from_secs(60);

fn settings(on: On) -> Settings {
    Settings {
        reaper_timeout: format!("{}s", on.lease().as_secs()).leak(),
        shutdown_timeout: "2s",
        max_retry: MAX_RETRY,
        level: "info",
        ..Settings::default()
    }
}

fn length(on: On) -> Duration {
    let asked = std::env::var(SECONDS).map(|text| text.parse().expect(SECONDS));
    let unasked = || match (std::env::var("CI").as_deref(), on) {
        (Ok("true"), On::Galera) => ON_NODES,
        (Ok("true"), _) => LONG,
        _ => SHORT,
    };
    Duration::from_secs(asked.unwrap_or_else(|_| unasked()))
}

/// The number of runs that are kept under way: more in a storm of half an hour, where the machine
/// does nothing else.
fn open_runs(on: On) -> usize {
    match length(on) >= Duration::from_secs(1_800) {
        true => 56,
        false => 24,
    }
}

/// Both databases at the same time: each storm waits most of the time.
#[test]
fn on_every_database() {
    storms("sqlite,postgres", |on| on != "galera");
}

/// Alone: the nodes, which exchange signs of life, need the machine's time.
#[test]
fn on_galera() {
    storms("galera", |on| on == "galera");
}

/// Runs storms on these databases, or on those of its own that the environment names.
fn storms(unasked: &str, own: fn(&str) -> bool) {
    let databases = std::env::var(DATABASES).unwrap_or_else(|_| unasked.to_owned());
    let asked: Vec<&str> = databases.split(',').filter(|on| own(on)).collect();
    if asked.is_empty() {
        return;
    }
    let dice = Dice::new(SEED);
    let storms = asked.into_iter().map(|database| {
        let (name, mut dice) = (database.to_owned(), dice.clone());
        let storm = move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            let on = match name.as_str() {
                "sqlite" => On::Sqlite,
                "postgres" => On::Postgres,
                "mysql" => On::Mysql,
                "galera" => On::Galera,
                other => panic!("{DATABASES}: there is no {other}"),
            };
            let plan = chosen(draw(dice.others(), length(on), on));
            match on {
                On::Sqlite => {
                    runtime.block_on(support::with(Db::sqlite(), |db| on_sqlite(db, plan, dice)))
                }
                On::Postgres => runtime.block_on(on_postgres(plan, dice)),
                On::Mysql => runtime.block_on(on_mysql(plan, dice)),
                On::Galera => runtime.block_on(on_nodes(plan, dice)),
            }
        };
        let thread = std::thread::Builder::new().name(database.to_owned());
        thread.spawn(storm).unwrap()
    });
    let storms: Vec<_> = storms.collect();
    let ended: Vec<_> = storms.into_iter().map(|storm| storm.join()).collect();
    // Once more, below the logs: a reader of the end of the output sees the reason.
    let reasons = ended.iter().filter_map(|ended| ended.as_ref().err());
    let reasons: Vec<&str> = reasons.map(|panic| reason(&**panic)).collect();
    assert!(reasons.is_empty(), "{}", reasons.join("\n"));
}

/// The message of a thread's panic.
fn reason(panic: &dyn std::any::Any) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("a panic without words")
}

fn pipelines() -> Vec<String> {
    let shapes = SHAPES.iter().map(|shape| shape.yaml());
    shapes.chain([ASIDE.to_owned()]).collect()
}

async fn on_sqlite(db: Db, plan: Vec<Blow>, dice: Dice) {
    let yamls = pipelines();
    let pipelines: Vec<&str> = yamls.iter().map(String::as_str).collect();
    let fixture = DaemonFixture::new(&db, settings(On::Sqlite), &pipelines).await;
    let mut scene = Scene::new(fixture, db.url.clone(), None);
    for _ in 0..HOSTS {
        let disk = Disk::new();
        let wrapper = ["env".to_owned()].into_iter().chain(disk.under());
        let host = Host::start(&scene.fixture, wrapper.collect(), None, Some(disk));
        scene.hosts.push(host);
    }
    storm(On::Sqlite, scene, plan, dice, db.location.clone()).await;
    let conn = rusqlite::Connection::open(db.url.trim_start_matches("sqlite://")).unwrap();
    let said = conn.query_row("PRAGMA integrity_check", [], |row| row.get::<_, String>(0));
    assert_eq!(said.unwrap(), "ok");
}

async fn on_postgres(plan: Vec<Blow>, dice: Dice) {
    let cluster = Cluster::start();
    let space = Space::like(&cluster.data(""));
    let url = foreign::database_in(&space, &cluster.url).await;
    let location = Location::parse(&url).expect("the server's URL");
    // The test's own query waits for the holder of the lock.
    let mut conn = location.connect(Purpose::Query).await.unwrap();
    migrate::migrate(&mut conn).await.unwrap();
    for role in ROLES {
        let create = format!("CREATE ROLE {role} SUPERUSER LOGIN");
        conn.script("CREATE ROLE", create.leak()).await.unwrap();
    }
    let yamls = pipelines();
    let pipelines: Vec<&str> = yamls.iter().map(String::as_str).collect();
    let mut fixture = DaemonFixture::at(&url, conn, settings(On::Postgres), &pipelines).await;
    let socket = socket(&mut fixture.conn).await;
    let mut scene = Scene::new(fixture, url.clone(), Some(Server::Postgres(cluster)));
    scene.space = Some(space);
    let url = |role: &str| url.replacen("postgres@", &format!("{role}@"), 1);
    let asking = on_network(On::Postgres, &mut scene, &[socket], url);
    storm(On::Postgres, scene, plan, dice, asking).await;
}

async fn on_mysql(plan: Vec<Blow>, dice: Dice) {
    let server = Mariadb::start();
    for role in ROLES {
        let create = format!("CREATE USER {role} IDENTIFIED BY ''; GRANT ALL ON *.* TO {role}");
        server.sql(&create);
    }
    let (socket, url) = (server.file("mysql.sock"), server.url.clone());
    let location = Location::parse(&url).expect("the server's URL");
    let mut conn = location.connect(Purpose::Query).await.unwrap();
    migrate::migrate(&mut conn).await.unwrap();
    let yamls = pipelines();
    let pipelines: Vec<&str> = yamls.iter().map(String::as_str).collect();
    let fixture = DaemonFixture::at(&url, conn, settings(On::Mysql), &pipelines).await;
    let mut scene = Scene::new(fixture, url.clone(), Some(Server::Mysql(server)));
    let url = |role: &str| user_of(&url, role);
    let asking = on_network(On::Mysql, &mut scene, &[socket], url);
    storm(On::Mysql, scene, plan, dice, asking).await;
}

async fn on_nodes(plan: Vec<Blow>, dice: Dice) {
    let nodes = Nodes::start();
    for role in ROLES {
        let create = format!("CREATE USER {role} IDENTIFIED BY ''; GRANT ALL ON *.* TO {role}");
        nodes.galera.sql(0, &create).expect("a user");
    }
    let url = nodes.galera.url(0, "ductwork");
    let location = Location::parse(&url).expect("the nodes' URL");
    let mut conn = location.connect(Purpose::Query).await.unwrap();
    migrate::migrate(&mut conn).await.unwrap();
    let yamls = pipelines();
    let pipelines: Vec<&str> = yamls.iter().map(String::as_str).collect();
    let fixture = DaemonFixture::at(&url, conn, settings(On::Galera), &pipelines).await;
    let mut scene = Scene::new(fixture, url.clone(), None);
    let sockets = nodes.sockets();
    scene.nodes = Some(Arc::new(nodes));
    let asking = on_network(On::Galera, &mut scene, &sockets, |role| user_of(&url, role));
    storm(On::Galera, scene, plan, dice, asking).await;
}

/// The same URL for another user, without a password.
fn user_of(url: &str, role: &str) -> String {
    let (_, at) = url.rsplit_once('@').expect("a URL with a user");
    format!("mysql://{role}@{at}")
}

/// Starts the hosts, each in its own network, and the last with its own clock; returns the location for the
/// clients. With several nodes, each host begins with another one.
fn on_network(
    on: On,
    scene: &mut Scene,
    sockets: &[PathBuf],
    url: impl Fn(&str) -> String,
) -> Location {
    let clock = Clock::new();
    for (host, role) in ROLES[..HOSTS].iter().enumerate() {
        let proxy = Proxy::apart(sockets);
        let mut wrapper = proxy.network.as_ref().expect("its own").under().to_vec();
        match host == HOSTS - 1 {
            true => wrapper.extend(clock.under()),
            false => wrapper.push("env".to_owned()),
        }
        let url = by_way_of(&proxy, &url(role), host);
        wrapper.push(format!("DUCTWORK_DATABASE_URL={url}"));
        let host = Host::start(&scene.fixture, wrapper, Some(Arc::new(proxy)), None);
        scene.hosts.push(host);
    }
    scene.clock = Some(clock);
    let proxy = Proxy::to(sockets);
    let url = by_way_of(&proxy, &url(ROLES[HOSTS]), HOSTS);
    scene.proxy = Some(Arc::new(proxy));
    // The caller is as impatient as a daemon: while it waits for a silent connection, no work arrives.
    let asking = Location::parse(&url).unwrap().leased(on.lease());
    scene.aside = Aside::new(asking.clone(), TAKES);
    asking
}

/// The socket on which the server listens on this machine, whatever network the caller is in.
async fn socket(conn: &mut Conn) -> PathBuf {
    static SOCKET: Statement = Statement::new(
        "TEST_SOCKET",
        "SELECT current_setting('unix_socket_directories') || '/.s.PGSQL.' || current_setting('port') AS file",
    );
    let row = conn.fetch_optional(&SOCKET, &[]).await.unwrap().unwrap();
    PathBuf::from(row.get::<String>("file").unwrap())
}

/// The URL of the servers behind this proxy, starting with the given one.
fn by_way_of(proxy: &Proxy, url: &str, first: usize) -> String {
    let (login, after) = url.rsplit_once('@').expect("a URL with a user");
    let (_, database) = after.split_once('/').expect("a URL with a database");
    let mut ports = proxy.ports.clone();
    let servers = ports.len();
    ports.rotate_left(first % servers);
    let places = ports.iter().map(|port| format!("127.0.0.1:{port}"));
    let places: Vec<String> = places.collect();
    format!("{login}@{}/{database}", places.join(","))
}

/// Prints the last faults, for the reader of a failure; the seed determines all of them.
struct Report {
    plan: Vec<Blow>,
    scene: Scene,
}

impl Drop for Report {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let from = self.scene.faults.len().saturating_sub(RECENT);
        for fault in &self.scene.faults[from..] {
            let blow = self.plan.iter().find(|blow| blow.number == fault.number);
            let (at, until) = (fault.at.as_secs_f64(), fault.until.as_secs_f64());
            let blow = blow.expect("what was done was planned");
            eprintln!("{blow}: {at:.2} to {until:.2}, {}", fault.target);
        }
        for (number, host) in self.scene.hosts.iter().enumerate() {
            eprintln!("host {number}: {}", host.told());
        }
        eprintln!("{} starts found no database", self.scene.vain_starts);
        if let Some(nodes) = &self.scene.nodes {
            nodes.give_up();
        }
    }
}

/// Waits until all runs have ended. After a quarter of the time it prints why the last of them are
/// still open: on a host without faults that is a long time.
async fn drain(fixture: &mut DaemonFixture) {
    static OPEN: Statement = Statement::new(
        "TEST_OPEN",
        "SELECT id FROM ductwork_runs WHERE status IN ('in_progress', 'dampened')
          ORDER BY id LIMIT 3",
    );
    let within = tokio::time::timeout(DRAIN / 4, async {
        while !fixture.all_ended().await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    if within.await.is_err() {
        let open = fixture.conn.fetch(&OPEN, &[]).await.unwrap();
        for run in open {
            let run: uuid::Uuid = run.get("id").unwrap();
            let why = fixture.run(&[], &["why", &run.to_string()]);
            eprintln!("{}", String::from_utf8_lossy(&why.stdout));
        }
        fixture.ended(DRAIN).await;
    }
}

async fn storm(of: On, scene: Scene, plan: Vec<Blow>, mut dice: Dice, asking: Location) {
    let on = std::thread::current().name().unwrap_or_default().to_owned();
    let mut report = Report { plan, scene };
    let scene = &mut report.scene;
    std::fs::write(scene.fixture.path("step.sh"), STEP).unwrap();
    for host in &scene.hosts {
        host.daemon.ready().await;
    }
    let mended = scene.fixture.path("mended");
    let people = People::start(asking.clone(), mended, dice.others());
    let triggers = Triggers::start(asking, open_runs(of));
    let began = Instant::now();
    let (mut audits, mut next_audit, mut next_word) = (0, Duration::ZERO, Duration::ZERO);
    for blow in &report.plan {
        tokio::time::sleep(blow.at.saturating_sub(began.elapsed())).await;
        let struck = Instant::now();
        scene.strike(blow).await;
        if struck.elapsed() > Duration::from_secs(5) {
            eprintln!("{on}: {blow} took {:?}", struck.elapsed());
        }
        if began.elapsed() >= next_audit {
            let asked = Instant::now();
            scene.audit().await;
            audits += 1;
            // Audits take a tenth of the time at most.
            next_audit = began.elapsed() + Duration::from_millis(500) + 10 * asked.elapsed();
        }
        if began.elapsed() >= next_word {
            let (lines, planned) = (scene.fixture.lines("ledger").len(), report.plan.len());
            let (at, done) = (began.elapsed().as_secs(), scene.faults.len());
            eprintln!("{on}: {at} s, {lines} lines, {done} of {planned} faults");
            next_word = began.elapsed() + Duration::from_secs(10);
        }
    }
    let lasted = began.elapsed();
    scene.quiet().await;
    let mut history = History {
        orders: people.ended(),
        triggers: triggers.ended(),
        lease: of.lease(),
        ..History::default()
    };
    let quiet = Instant::now();
    drain(&mut scene.fixture).await;
    let drained = quiet.elapsed();
    let (refused, full) = scene.ended().await;
    scene.fixture.audited().await;

    history.read(&mut scene.fixture.conn).await;
    let lines = scene.fixture.lines("ledger");
    history.lines = lines.iter().map(|line| Line::parse(line)).collect();
    history.faults.clone_from(&scene.faults);
    let verdict = judge(&history);
    let tally = scene.tally();
    let told = |told: fn(&Told) -> bool| history.orders.iter().filter(|it| told(&it.told)).count();
    let cancelled = told(|it| *it == Told::Cancelled);
    let revived = told(|it| matches!(it, Told::Revived(_)));
    let unknown = told(|it| matches!(it, Told::MayBeCancelled | Told::MayBeRevived));
    let with = |result: &str| {
        history
            .executions
            .iter()
            .filter(|it| it.result == result)
            .count()
    };
    eprintln!(
        "{on}: {lasted:?} of it\n\
         {} runs, {cancelled} cancelled and {revived} revived of {} orders, {unknown} of them unanswered\n\
         {} steps, {} attempts: {} errors on purpose, {} crashed, {} released, {} cancelled\n\
         {} faults: {tally:?}\n\
         {} attempts had started in vain, {refused} late results were refused, {} steps overlapped, \
         {} started late\n\
         {} attempts were under way when their runs were cancelled, {} started later where nobody \
         could be told\n\
         {full} times a log was found full, {} starts found no database; {audits} audits under way; drained in {drained:?}\n{}",
        history.runs.len(),
        history.orders.len(),
        history.steps.len(),
        history.executions.len(),
        with("error"),
        with("process_crashed"),
        with("released"),
        with("cancelled"),
        history.faults.len(),
        verdict.extra_starts,
        verdict.overlaps,
        verdict.late_starts,
        verdict.cancelled,
        verdict.untold,
        scene.vain_starts,
        measure(&history),
    );
    if let Some(nodes) = &scene.nodes {
        eprintln!("{}", nodes.told());
    }
    let some: Vec<_> = verdict.broken.iter().take(20).collect();
    assert!(
        some.is_empty(),
        "{} broken: {some:#?}",
        verdict.broken.len()
    );

    // On a cluster every writer waits while a node is away, so in half an hour a fault may find nobody to strike.
    let unproven = scene.unproven();
    let spared = match of {
        On::Galera if length(of) >= Duration::from_secs(1_800) => scene.faults.len() / 100,
        _ => 0,
    };
    assert!(
        unproven.len() <= spared,
        "they struck nobody: {unproven:#?}"
    );
    if !unproven.is_empty() {
        eprintln!("{on}: they struck nobody: {unproven:#?}");
    }

    // All planned faults were done, and there was work meanwhile.
    let done: Vec<usize> = scene.faults.iter().map(|fault| fault.number).collect();
    let planned: Vec<usize> = report.plan.iter().map(|blow| blow.number).collect();
    assert_eq!(done, planned, "what was planned was not done");
    assert!(history.runs.len() > SHAPES.len(), "there was no work");
    if std::env::var_os("DUCTWORK_CHAOS_FAULTS").is_some() {
        return;
    }
    assert!(verdict.extra_starts > 0, "nothing was hit");
    assert!(cancelled > 0 && revived > 0, "nobody asked for anything");
    // In a short storm little may have been logged while nobody read.
    let long = length(of) >= Duration::from_secs(LONG);
    assert!(full > 0 || !long, "no log was ever full");
    let count = |of: fn(Kind) -> bool| -> usize {
        let of = tally.iter().filter(|(kind, _)| of(**kind));
        of.map(|(_, times)| *times).sum()
    };
    let found = [
        count(Kind::is_kill),
        count(|kind| matches!(kind, Kind::Freeze | Kind::Sleep)),
        match of {
            On::Sqlite => usize::MAX,
            On::Postgres | On::Mysql => count(|kind| kind == Kind::Server),
            On::Galera => count(Kind::is_of_a_node),
        },
        history.steps.len(),
    ];
    let floors = match of {
        On::Galera => &FLOORS_ON_NODES[..],
        On::Mysql => &FLOORS_ON_MARIADB[..],
        _ => &FLOORS[..],
    };
    for (seconds, kills, stops, servers, steps) in floors {
        let least = [*kills, *stops, *servers, *steps];
        let enough = found
            .iter()
            .zip(least)
            .all(|(found, least)| *found >= least);
        assert!(
            length(of) < Duration::from_secs(*seconds) || enough,
            "{found:?} of {least:?} kills, stops, crashes of the server and steps"
        );
    }
}
