//! The plan, drawn from a seed before anything happens, so that the same seed brings the same blows
//! at the same times. Pure. The outcome depends on the machine: no seed decides which process is at
//! work when a blow falls, and on which step.

use std::fmt;
use std::time::Duration;

use crate::dice::Dice;
use crate::history::Kind;

/// How many hosts there are.
pub const HOSTS: usize = 2;

/// About the time of a round. With every seed, a plan has as many whole rounds as it takes of this to fill its
/// length: a storm asserts that it had enough kills.
const ROUND: Duration = Duration::from_secs(22);

/// The variable that selects the faults; unset: all.
const FAULTS: &str = "DUCTWORK_CHAOS_FAULTS";

/// How often each fault is done in one round, on every database.
const ANYWHERE: [(Kind, usize); 14] = [
    (Kind::KillWorker, 5),
    (Kind::KillStep, 5),
    (Kind::KillAdvancer, 3),
    (Kind::KillSupervisor, 2),
    (Kind::Freeze, 3),
    (Kind::Sleep, 1),
    (Kind::Restart, 1),
    (Kind::Storm, 1),
    (Kind::Replace, 1),
    (Kind::Log, 1),
    (Kind::Descriptors, 1),
    (Kind::WideCancel, 1),
    (Kind::Prune, 1),
    (Kind::Newer, 1),
];

const ON_SQLITE: [(Kind, usize); 5] = [
    (Kind::Lock, 1),
    (Kind::NoSpace, 1),
    (Kind::WriteError, 1),
    (Kind::ShortWrite, 1),
    (Kind::SyncError, 1),
];

/// Faults that need a proxy, or sessions of other users.
const ON_SERVERS: [(Kind, usize); 9] = [
    (Kind::Clock, 1),
    (Kind::Reset, 1),
    (Kind::BlackHole, 1),
    (Kind::Partition, 1),
    (Kind::OneWay, 2),
    (Kind::Silent, 1),
    (Kind::Cut, 2),
    (Kind::Delay, 1),
    (Kind::StatementTimeout, 1),
];

/// Crashes of the server have a measure of their own.
const ON_POSTGRES: [(Kind, usize); 2] = [(Kind::TableLock, 1), (Kind::FullTablespace, 1)];

/// No full disk: a server of this kind ends by itself when a table cannot grow, and crashes are covered already. No
/// table lock on a cluster: a session's lock holds on its own node alone, and writes that arrive from other nodes wait
/// for it or end it.
const ON_MYSQL: [(Kind, usize); 1] = [(Kind::TableLock, 1)];

/// Faults of the server, or of a cluster's nodes, come one after the other: the server or cluster has to be whole
/// again before the next.
const TO_SERVER: [(Kind, usize); 1] = [(Kind::Server, 1)];
const TO_NODES: [(Kind, usize); 6] = [
    (Kind::KillNode, 2),
    (Kind::StopNode, 2),
    (Kind::IsolateNode, 1),
    (Kind::NoQuorum, 1),
    (Kind::LockNode, 1),
    (Kind::KillNodes, 1),
];

/// The database of a storm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    Sqlite,
    Postgres,
    /// MariaDB.
    Mysql,
    /// Three nodes of MariaDB.
    Galera,
}

impl On {
    /// The length of a lease: short enough that some processes stand still for longer. On a cluster it outlasts a node
    /// that every writer waits for.
    pub fn lease(self) -> Duration {
        Duration::from_secs(match self {
            Self::Galera => 15,
            _ => 3,
        })
    }

    /// The time until the first blow to the server, and between two of them: with more of them
    /// nothing else would happen.
    fn server(self) -> [Duration; 2] {
        let [first, every] = match self {
            Self::Galera => [5, 14],
            _ => [8, 20],
        };
        [Duration::from_secs(first), Duration::from_secs(every)]
    }
}

/// One planned fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blow {
    pub number: usize,
    /// Time from the start; the blow falls no earlier, and not before the previous one is done.
    pub at: Duration,
    pub kind: Kind,
    /// The index of the host; one past the last means all hosts, or the triggering client.
    pub host: usize,
    /// The kind of process, as the beginning of `Process::kind`.
    pub whom: &'static str,
    /// Selects one of those processes, if there are several.
    pub pick: u64,
    pub lasts: Duration,
    /// A number by which faults of a kind differ.
    pub amount: u64,
}

impl fmt::Display for Blow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            number,
            kind,
            host,
            whom,
            pick,
            lasts,
            amount,
            ..
        } = self;
        let at = self.at.as_secs_f64();
        write!(
            f,
            "{number:5} {at:9.3} s  {kind:?}, host {host}, {whom} {pick}, {lasts:?}, {amount}"
        )
    }
}

/// All the blows of this length of time, with each kind at least once, except those of a cluster's nodes: a round of
/// them takes two minutes.
pub fn draw(mut dice: Dice, length: Duration, on: On) -> Vec<Blow> {
    let [shared, own]: [&[(Kind, usize)]; 2] = match on {
        On::Sqlite => [&[], &ON_SQLITE],
        On::Postgres => [&ON_SERVERS, &ON_POSTGRES],
        On::Mysql => [&ON_SERVERS, &ON_MYSQL],
        On::Galera => [&ON_SERVERS, &[]],
    };
    let to_server: &[(Kind, usize)] = match on {
        On::Sqlite => &[],
        On::Postgres | On::Mysql => &TO_SERVER,
        On::Galera => &TO_NODES,
    };
    let all = ANYWHERE.iter().chain(shared).chain(own);
    let all: Vec<Kind> = all.flat_map(times).collect();
    let mut plan: Vec<Blow> = Vec::new();
    let mut at = Duration::ZERO;
    let [mut next_server, every] = on.server();
    let mut server_round: Vec<Kind> = Vec::new();
    let mut rounds = 0;
    loop {
        let mut round = all.clone();
        while !round.is_empty() {
            if !to_server.is_empty() && at >= next_server {
                if server_round.is_empty() {
                    server_round.extend(to_server.iter().flat_map(times));
                }
                let kind = drawn(&mut server_round, &mut dice);
                plan.push(Blow::draw(&mut dice, plan.len(), at, kind, on));
                next_server += every;
                at += costs(Kind::Server);
            }
            let kind = drawn(&mut round, &mut dice);
            plan.push(Blow::draw(&mut dice, plan.len(), at, kind, on));
            at += Duration::from_millis(dice.below(700)) + costs(kind);
            rounds += u32::from(round.is_empty());
            // The first round always runs to its end.
            if at >= length && ROUND * rounds >= length.max(ROUND) {
                return plan;
            }
        }
    }
}

fn times((kind, times): &(Kind, usize)) -> impl Iterator<Item = Kind> {
    std::iter::repeat_n(*kind, *times)
}

/// Removes and returns one of the remaining kinds.
fn drawn(round: &mut Vec<Kind>, dice: &mut Dice) -> Kind {
    round.swap_remove(dice.below(round.len() as u64) as usize)
}

/// About how long everything else has to wait for it.
fn costs(kind: Kind) -> Duration {
    Duration::from_millis(match kind {
        Kind::KillSupervisor => 300,
        Kind::Restart | Kind::Storm => 700,
        Kind::Server => 2_000,
        _ => 100,
    })
}

impl Blow {
    fn draw(dice: &mut Dice, number: usize, at: Duration, kind: Kind, on: On) -> Self {
        // Each blow takes the same number of throws, whatever it makes of them.
        let [host, whom, pick, lasts, amount] = std::array::from_fn(|_| dice.below(1 << 32));
        let below = |most: u64| Duration::from_millis(lasts % most);
        let more = |least: u64, most: u64| Duration::from_millis(least) + below(most - least);
        // Longer than leases last; where leases are long, only so rarely that the hosts still work in between.
        let outlasting = |times: u64| {
            let long = on.lease() > Duration::from_secs(3) && amount.is_multiple_of(times);
            long.then(|| on.lease() + more(500, 3_500))
        };
        let all = host as usize % (HOSTS + 1);
        let one = host as usize % HOSTS;
        let (host, whom, lasts) = match kind {
            Kind::KillWorker => (one, "worker", Duration::ZERO),
            Kind::KillAdvancer => (one, "advancer", Duration::ZERO),
            Kind::KillStep => (one, "sh step.sh", Duration::ZERO),
            // Long enough that some processes outlast their leases.
            Kind::Freeze => {
                let whom = ["worker", "worker", "advancer", "supervisor"][whom as usize % 4];
                let most = if amount.is_multiple_of(2) {
                    1_000
                } else {
                    5_000
                };
                (one, whom, outlasting(12).unwrap_or(more(100, most)))
            }
            // Longer than leases last.
            Kind::Sleep => (one, "", outlasting(3).unwrap_or(more(3_500, 6_500))),
            // Some last longer than leases.
            Kind::Partition => (one, "", outlasting(3).unwrap_or(below(6_000))),
            Kind::Log => (one, "", more(3_000, 8_000)),
            Kind::Descriptors => (one, "worker", more(300, 3_000)),
            Kind::Server => (HOSTS, "", below(1_500)),
            // The others go on without a node after five seconds.
            Kind::KillNode => (HOSTS, "", below(9_000)),
            Kind::KillNodes => (HOSTS, "", below(1_500)),
            Kind::StopNode if amount.is_multiple_of(2) => (HOSTS, "", more(500, 4_000)),
            Kind::StopNode => (HOSTS, "", more(7_000, 12_000)),
            Kind::IsolateNode => (HOSTS, "", more(500, 10_000)),
            Kind::NoQuorum => (HOSTS, "", more(500, 6_000)),
            // Every third lasts longer than leases.
            Kind::LockNode => (HOSTS, "", outlasting(3).unwrap_or(more(500, 8_000))),
            Kind::Lock => (HOSTS, "", below(3_000)),
            // Some last longer than leases.
            Kind::TableLock => {
                let most = [1_000, 1_000, 5_000][whom as usize % 3];
                (HOSTS, "", more(200, most))
            }
            // Short enough that no lease ends: here and there a statement gets through, so a
            // process that starts meanwhile may claim.
            Kind::StatementTimeout => (all, "", more(200, 1_500)),
            Kind::FullTablespace => (HOSTS, "", more(200, 1_500)),
            Kind::WideCancel | Kind::Prune => (HOSTS, "", Duration::ZERO),
            Kind::Newer => (HOSTS, "", more(300, 4_000)),
            // Where all hosts are hit, none is given up: the fault is short enough that no lease
            // ends.
            _ if kind.is_of_the_disk() && all == HOSTS => (all, "", more(100, 1_500)),
            _ if kind.is_of_the_disk() => (all, "", more(100, 5_000)),
            // Until a busy connection is given up.
            Kind::Silent => (all, "", Duration::from_secs(10)),
            Kind::Reset | Kind::BlackHole | Kind::OneWay | Kind::Cut | Kind::Delay => {
                (all, "", below(5_000))
            }
            _ => (one, "", Duration::ZERO),
        };
        Self {
            number,
            at,
            kind,
            host,
            whom,
            pick: pick % 100,
            lasts,
            amount: amount % 100_000,
        }
    }
}

/// The selected blows of a plan: `3,7-12` by their numbers, or `Silent` for all of a kind.
pub fn chosen(plan: Vec<Blow>) -> Vec<Blow> {
    let Ok(text) = std::env::var(FAULTS) else {
        return plan;
    };
    let number = |text: &str| -> usize {
        text.parse()
            .unwrap_or_else(|_| panic!("{FAULTS}: {text} is no number"))
    };
    let is_kind = |text: &&str| text.starts_with(|first: char| first.is_ascii_uppercase());
    let (kinds, numbers): (Vec<&str>, Vec<&str>) = text.split(',').partition(is_kind);
    let ranges: Vec<_> = numbers
        .into_iter()
        .map(|range| {
            let (from, to) = range.split_once('-').unwrap_or((range, range));
            number(from)..=number(to)
        })
        .collect();
    let asked = |blow: &Blow| {
        let kind = format!("{:?}", blow.kind);
        kinds.contains(&kind.as_str()) || ranges.iter().any(|range| range.contains(&blow.number))
    };
    plan.into_iter().filter(asked).collect()
}

#[test]
fn a_seed_is_a_plan_and_a_longer_one_begins_like_a_shorter_one() {
    for on in [On::Sqlite, On::Postgres, On::Mysql, On::Galera] {
        let draw = |seed, seconds| draw(Dice::of(seed), Duration::from_secs(seconds), on);
        let plan = draw(7, 300);
        assert_eq!(plan, draw(7, 300));
        assert_ne!(plan, draw(8, 300));
        let short = draw(7, 60);
        assert_eq!(short, plan[..short.len()]);
        assert!(plan.is_sorted_by_key(|blow| blow.at));
        // Even the shortest plan contains every kind.
        let least = draw(7, 1);
        for (kind, _) in ANYWHERE {
            assert!(least.iter().any(|blow| blow.kind == kind), "{kind:?}");
        }
        // As many as a storm has to have. If the time alone decided, one seed in forty would bring fewer.
        for seed in 0..400 {
            let plan = draw(seed, 300);
            let kills = plan.iter().filter(|blow| blow.kind.is_kill()).count();
            assert!(kills >= 200, "only {kills} with the seed {seed}");
        }
        // Each kind occurs in five minutes, and only one at a time affects the cluster.
        let nodes = plan.iter().filter(|blow| blow.kind.is_of_a_node()).count();
        assert!(on != On::Galera || nodes >= 15, "only {nodes}");
        let of_each = |(kind, _): &(Kind, usize)| plan.iter().any(|blow| blow.kind == *kind);
        assert!(on != On::Galera || TO_NODES.iter().all(of_each));
    }
}
