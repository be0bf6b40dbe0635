//! The built daemon: real processes, real signals, real databases, and the conditions that must
//! hold with them.
//!
//! Most tests run on each database (`on_every_database!`). The tests below leave some out; a test that is not in the
//! table and names no database, such as one of the program's arguments, does not depend on one:
//!
//! | test | is silent about | because |
//! |---|---|---|
//! | all of `on_servers!` and `on_every_server!` | SQLite | there is no server that stops, no session that ends or goes silent, no row or table that a foreign session locks, no other host |
//! | `files`, `sqlite`, `writers`; of `stale` the worker that is frozen while it writes; of `resources` the file that cannot grow | servers | they are about SQLite's file, its log, or its one lock for all writers |
//! | `crowded`: a disk that is full or fills up | PostgreSQL | a server's disk belongs to its own host, and `tests/chaos` fills PostgreSQL's |
//! | `locks`: a locked table is named, with the session that has the lock, and so it is by a command that waits | MariaDB, SQLite | `obstacles` covers MariaDB's locks; SQLite has none (`writers` names its writer) |
//! | `locks`: an advancer and a run that is locked | MariaDB, SQLite | the tripwires of the tests read the run of each branch that is written, and on MariaDB they wait for the lock; SQLite has no locks of rows |
//! | `obstacles` | PostgreSQL, SQLite | it is about the information that a login of MariaDB's may see |
//! | `failover`: a promoted standby that lacks the last commits; `promotion` | MariaDB, SQLite | nodes of a Galera cluster take the place of standbys; SQLite has neither |
//! | `giants`: a result that no connection survives | MariaDB, SQLite | PostgreSQL's protocol is cut. MariaDB and its driver refuse a long packet with a named error, which `tests/mysql` covers; SQLite has no connection |
//! | `pooler` | MariaDB, SQLite | PgBouncer is PostgreSQL's. Nothing here simulates a pooler for MySQL; the queries at the start of a session find one |
//! | `history` | PostgreSQL, SQLite | their plans are the same whatever the tables contain, and `tests/sql` reads them |
//! | `standstill`; the idle daemon of `hosts` | PostgreSQL, SQLite | one process serves all sessions of MariaDB, so all stand still at once: `outage` stops PostgreSQL's one by one. The count of statements is MariaDB's |
//! | `starts` | servers | missing names and programs, and the processes that a hook leaves, are a matter of the host |

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by it, outside of the functions that the linter takes for tests too"
)]

#[path = "../support/mod.rs"]
mod support;
#[expect(dead_code, reason = "other tests need more of it")]
#[path = "../tripwires/mod.rs"]
mod wires;

#[path = "../support/clock.rs"]
mod clock;

#[expect(dead_code, reason = "other tests need more of it")]
#[path = "../support/dice.rs"]
mod dice;

#[path = "../support/certify.rs"]
mod certify;
#[path = "../support/cluster.rs"]
mod cluster;
mod fixture;
#[path = "../support/foreign.rs"]
mod foreign;
#[path = "../support/mariadb.rs"]
mod mariadb;
#[path = "../support/server.rs"]
mod server;
#[path = "../support/writing.rs"]
mod writing;

mod ahead;
mod children;
mod clocks;
mod contexts;
mod copies;
mod crowded;
mod damaged;
mod dumps;
mod failover;
mod files;
mod giants;
mod history;
mod hosts;
mod keeping;
mod kills;
mod locks;
mod logs;
mod namespaces;
mod obstacles;
mod outage;
mod pauses;
mod pooler;
mod promotion;
mod refused;
mod relay;
mod resources;
mod roles;
mod signals;
mod silent;
mod sqlite;
mod stale;
mod standstill;
mod starts;
mod steps;
mod stops;
mod stuck;
mod tls;
mod unread;
mod upgrades;
mod waits;
mod wide;
mod writers;
