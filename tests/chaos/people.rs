//! A client that cancels runs and revives halted ones all the time, and records the answers. Now
//! and then it gives the same order twice at once.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use ductwork::model::{RunId, RunStatus};
use ductwork::store::cancel::{self, Cancel};
use ductwork::store::revive::{self, Revive};
use ductwork::store::statement::Statement;
use ductwork::store::{Conn, Error, Location, Purpose};
use uuid::Uuid;

use crate::dice::Dice;
use crate::history::{Order, Told, uptime};

/// The longest pause between two orders.
const PAUSE: u64 = 300;

/// Gives orders until it is told to stop; it has its own thread, so that no fault stops it.
pub struct People {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Vec<Order>>>,
}

impl People {
    /// Begins. A file in this directory fixes the cause of a halt before its run is revived.
    pub fn start(location: Location, mended: PathBuf, dice: Dice) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&stop);
        std::fs::create_dir(&mended).unwrap();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            let mut desk = Desk {
                location,
                mended,
                dice,
                orders: Vec::new(),
            };
            runtime.unwrap().block_on(desk.work(&until));
            desk.orders
        });
        Self {
            stop,
            thread: Some(thread),
        }
    }

    /// Stops the client; returns all orders with their answers.
    pub fn ended(mut self) -> Vec<Order> {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().expect("it is ended once");
        thread.join().expect("it does not panic")
    }
}

impl Drop for People {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

struct Desk {
    location: Location,
    mended: PathBuf,
    dice: Dice,
    orders: Vec<Order>,
}

impl Desk {
    async fn work(&mut self, stop: &AtomicBool) {
        let mut conns = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            tokio::time::sleep(Duration::from_millis(self.dice.below(PAUSE))).await;
            conns.retain(|conn: &Conn| !conn.is_broken());
            if conns.len() < 2 {
                conns.extend(self.location.connect(Purpose::Engine).await.ok());
                continue;
            }
            // An attempt that fails here has asked for nothing yet.
            let _unasked = self.order(&mut conns).await;
        }
    }

    async fn order(&mut self, conns: &mut [Conn]) -> Result<(), Error> {
        static ACTIVE: Statement = Statement::new(
            "TEST_ACTIVE",
            "SELECT id FROM ductwork_runs WHERE status = 'in_progress' AND pipeline <> 'Aside'",
        );
        static HALTED: Statement = Statement::new(
            "TEST_HALTED",
            "SELECT id FROM ductwork_runs r WHERE status = 'halted' AND pipeline <> 'Aside'
                AND NOT EXISTS (SELECT 1 FROM ductwork_runs s WHERE s.revived_from = r.id)",
        );
        static ENDED: Statement = Statement::new(
            "TEST_ENDED",
            "SELECT id FROM ductwork_runs WHERE status <> 'in_progress' AND pipeline <> 'Aside'
              ORDER BY id DESC LIMIT 20",
        );
        let (first, second) = conns.split_at_mut(1);
        let (first, second) = (&mut first[0], &mut second[0]);
        // Most orders make sense; some come too late.
        let choice = self.dice.below(16);
        let from = match choice {
            0..3 => &ACTIVE,
            3..13 => &HALTED,
            _ => &ENDED,
        };
        let revives = (3..15).contains(&choice);
        let found = first.fetch(from, &[]).await?;
        if found.is_empty() {
            return Ok(());
        }
        let at = self.dice.below(found.len() as u64) as usize;
        let run: Uuid = found[at].get("id")?;
        if revives {
            self.mend(first, run).await?;
        }
        let both = self.dice.below(4) == 0;
        let other = async {
            match both {
                true => Some(ask(second, run, revives).await),
                false => None,
            }
        };
        let (one, other) = tokio::join!(ask(first, run, revives), other);
        self.orders.push(one);
        self.orders.extend(other);
        Ok(())
    }

    /// A step that failed for good will succeed when it is tried again.
    async fn mend(&self, conn: &mut Conn, run: Uuid) -> Result<(), Error> {
        static FAILED: Statement = Statement::new(
            "TEST_FAILED",
            "SELECT input FROM ductwork_steps WHERE run_id = :run AND status = 'failed'",
        );
        for row in conn.fetch(&FAILED, &[("run", run.into())]).await? {
            let input: String = row.get("input")?;
            // The directory is gone when everything else has failed.
            let _gone = std::fs::write(self.mended.join(input), "");
        }
        Ok(())
    }
}

async fn ask(conn: &mut Conn, run: Uuid, revives: bool) -> Order {
    let over = |status: RunStatus| Told::Over(status.as_str().to_owned());
    let told = if revives {
        match revive::revive(conn, RunId(run)).await {
            Ok(Revive::Done(to)) => Told::Revived(to.0),
            Ok(Revive::AlreadyRevived(to)) => Told::Before(to.0),
            Ok(Revive::NotHalted(status)) => over(status),
            Ok(Revive::NotFound) => panic!("{run} was there a moment ago"),
            Ok(Revive::Disagrees(why)) => panic!("{run} was asked for as it was: {why:?}"),
            Err(error) if in_commit(&error) => Told::MayBeRevived,
            Err(_) => Told::Refused,
        }
    } else {
        match cancel::cancel(conn, RunId(run)).await {
            Ok(Cancel::Done { .. }) => Told::Cancelled,
            Ok(Cancel::NotActive(status)) => over(status),
            Ok(Cancel::NotFound) => panic!("{run} was there a moment ago"),
            Err(error) if in_commit(&error) => Told::MayBeCancelled,
            Err(_) => Told::Refused,
        }
    };
    Order {
        run,
        told,
        until: uptime(),
    }
}

fn in_commit(error: &Error) -> bool {
    matches!(
        error,
        Error::Unavailable {
            in_commit: true,
            ..
        }
    )
}
