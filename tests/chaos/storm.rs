//! The whole: load, faults for a while, silence, and then the oracle.

use std::time::{Duration, Instant};

use ductwork::store::{Location, Purpose, migrate};

use crate::clock::Clock;
use crate::cluster::Cluster;
use crate::dice::Dice;
use crate::history::{History, Line, uptime};
use crate::house::*;
use crate::oracle::judge;
use crate::proxy::Proxy;
use crate::strikes::{Host, Scene};
use crate::support::{self, Db};
use crate::triggers::Triggers;
use crate::workload::{MAX_RETRY, SHAPES, STEP};

const SECONDS: &str = "DUCTWORK_CHAOS_SECONDS";
const SEED: &str = "DUCTWORK_CHAOS_SEED";

/// From the last fault until nothing is left to do.
const DRAIN: Duration = Duration::from_secs(60);

fn settings() -> Settings {
    Settings {
        // So short that some stand still for longer.
        reaper_timeout: "3s",
        shutdown_timeout: "2s",
        max_retry: MAX_RETRY,
        level: "info",
        ..Settings::default()
    }
}

/// The faults, for whoever has to find out what happened.
struct Told(Scene);

impl Drop for Told {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for fault in &self.0.faults {
                eprintln!(
                    "{:.2} {:?} {}",
                    fault.at.as_secs_f64(),
                    fault.kind,
                    fault.target
                );
            }
        }
    }
}

#[tokio::test]
async fn sqlite() {
    support::with(Db::sqlite(), on_sqlite).await;
}

async fn on_sqlite(db: Db) {
    let dice = Dice::new(SEED);
    let yamls = SHAPES.iter().map(|shape| shape.yaml());
    let yamls: Vec<String> = yamls.collect();
    let pipelines: Vec<&str> = yamls.iter().map(String::as_str).collect();
    let house = House::new(&db, settings(), &pipelines).await;
    let mut scene = Scene::new(house, db.url.clone(), None, dice);
    for _ in 0..2 {
        scene
            .hosts
            .push(Host::start(&scene.house, Vec::new(), None));
    }
    storm(scene, db.location.clone()).await;
}

#[tokio::test]
async fn postgres() {
    let dice = Dice::new(SEED);
    let cluster = Cluster::start();
    let location = Location::parse(&cluster.url).expect("the server's URL");
    let mut conn = location.connect(Purpose::Engine).await.unwrap();
    migrate::migrate(&mut conn).await.unwrap();
    let yamls = SHAPES.iter().map(|shape| shape.yaml());
    let yamls: Vec<String> = yamls.collect();
    let pipelines: Vec<&str> = yamls.iter().map(String::as_str).collect();
    let house = House::at(&cluster.url, conn, settings(), &pipelines).await;
    let url = cluster.url.clone();
    let mut scene = Scene::new(house, url.clone(), Some(cluster), dice);
    let clock = Clock::new();
    for host in 0..2 {
        let (proxy, url) = between(&url);
        let mut wrapper = vec!["env".to_owned()];
        if host == 1 {
            wrapper = clock.under().to_vec();
        }
        wrapper.push(format!("DUCTWORK_DATABASE_URL={url}"));
        scene
            .hosts
            .push(Host::start(&scene.house, wrapper, Some(proxy)));
    }
    scene.clock = Some(clock);
    let (proxy, url) = between(&url);
    scene.proxy = Some(proxy);
    storm(scene, Location::parse(&url).unwrap()).await;
}

/// A proxy before this server, and the way to it.
fn between(url: &str) -> (Proxy, String) {
    let (before, after) = url.rsplit_once(':').expect("a URL with a port");
    let (port, database) = after.split_once('/').expect("a URL with a database");
    let proxy = Proxy::to(port.parse().expect("a port"));
    let url = format!("{before}:{}/{database}", proxy.port);
    (proxy, url)
}

async fn storm(scene: Scene, triggering: Location) {
    let seconds = std::env::var(SECONDS).map_or(20, |text| text.parse().expect(SECONDS));
    let length = Duration::from_secs(seconds);
    let mut told = Told(scene);
    let scene = &mut told.0;
    std::fs::write(scene.house.path("step.sh"), STEP).unwrap();
    for host in &scene.hosts {
        host.daemon.ready().await;
    }
    let triggers = Triggers::start(triggering);
    let began = Instant::now();
    let (mut audits, mut next_audit, mut next_word) = (0, Duration::ZERO, Duration::ZERO);
    while began.elapsed() < length || !scene.has_seen_all() {
        scene.strike().await;
        if began.elapsed() >= next_audit {
            let asked = Instant::now();
            scene.audit().await;
            audits += 1;
            // A tenth of the time at most.
            next_audit = began.elapsed() + Duration::from_millis(500) + 10 * asked.elapsed();
        }
        if began.elapsed() >= next_word {
            let lines = scene.house.lines("ledger").len();
            eprintln!("{:?}: {lines} lines, {:?}", began.elapsed(), scene.tally());
            next_word = began.elapsed() + Duration::from_secs(10);
        }
    }
    // What was to last longer comes to its end as well.
    let last = scene.faults.iter().map(|fault| fault.until).max();
    tokio::time::sleep(last.unwrap_or_default().saturating_sub(uptime())).await;
    for proxy in scene.hosts.iter().filter_map(|host| host.proxy.as_ref()) {
        proxy.clear();
    }
    scene.proxy.iter().for_each(Proxy::clear);
    let mut history = History {
        triggers: triggers.ended(),
        ..History::default()
    };
    let quiet = Instant::now();
    scene.house.ended(DRAIN).await;
    let drained = quiet.elapsed();
    let refused = scene.refusals();
    for host in &mut scene.hosts {
        host.daemon.stop().await;
    }
    scene.house.audited().await;

    history.read(&mut scene.house.conn).await;
    let lines = scene.house.lines("ledger");
    history.lines = lines.iter().map(|line| Line::parse(line)).collect();
    history.faults.clone_from(&scene.faults);
    let verdict = judge(&history);
    let ended = |result: &str| {
        let found = history.executions.iter().filter(|it| it.result == result);
        found.count()
    };
    let tally = scene.tally();
    eprintln!(
        "{} runs, {} steps, {} attempts: {} errors on purpose, {} crashed, {} released\n\
         {} faults: {tally:?}\n\
         {} attempts had started in vain, {refused} late results were refused, {} steps overlapped, \
         {} started late\n\
         {audits} audits under way; drained in {drained:?}",
        history.runs.len(),
        history.steps.len(),
        history.executions.len(),
        ended("error"),
        ended("process_crashed"),
        ended("released"),
        history.faults.len(),
        verdict.extra_starts,
        verdict.overlaps,
        verdict.late_starts,
    );
    let some: Vec<_> = verdict.broken.iter().take(20).collect();
    assert!(
        some.is_empty(),
        "{} broken: {some:#?}",
        verdict.broken.len()
    );

    // It was chaos, and there was work in it.
    for (kind, times) in scene.expected(length) {
        let fired = tally.get(&kind).copied().unwrap_or_default();
        assert!(fired >= times, "{kind:?} only {fired} times");
    }
    assert!(history.runs.len() > SHAPES.len(), "there was no work");
    assert!(verdict.extra_starts > 0, "nothing was hit");
}
