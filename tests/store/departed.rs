//! Processes that are gone, and the information that is kept about them.

use std::time::Duration;

use ductwork::engine::actor::limits;
use ductwork::model::{ProcessId, Role, short};
use ductwork::store::departed::{self, Departed, REMEMBERED_AT_MOST};
use ductwork::store::process;
use ductwork::store::prune::{self, Pruning};
use ductwork::store::recovery::{self, Death};
use ductwork::store::statement::Statement;
use ductwork::store::{Conn, left_to_do, query};

use crate::driver::{Driver, process_of, register};
use crate::on_every_database;
use crate::support::Db;

/// As if they had departed that much earlier.
static EARLIER: Statement = Statement::new(
    "TEST_DEPARTED_EARLIER",
    "UPDATE ductwork_departed SET gone_at = gone_at - :age",
);

/// Processes that end in order.
async fn depart(conn: &mut Conn, n: usize) {
    for _ in 0..n {
        let process = register(conn).await;
        process::deregister(conn, process).await.unwrap();
    }
}

async fn ago(conn: &mut Conn, age: Duration) {
    let age = i64::try_from(age.as_micros()).unwrap();
    conn.execute(&EARLIER, &[("age", age.into())])
        .await
        .unwrap();
}

on_every_database! {
    async fn a_process_that_is_gone_is_remembered_with_how_it_went_until_history_is_pruned(db: Db) {
        let mut driver = Driver::new(&db).await;
        let orderly = register(&mut driver.conn).await;
        let killed = register(&mut driver.conn).await;
        let living = register(&mut driver.conn).await;
        process::deregister(&mut driver.conn, orderly).await.unwrap();
        // A second deregistration changes nothing.
        process::deregister(&mut driver.conn, orderly).await.unwrap();
        for how in ["killed by SIGKILL", "seen a second time"] {
            let death = Death::Proven { how };
            let budgets = |_: &_, _: &str| limits(1, 1);
            recovery::recover(&mut driver.actor.conn, killed, death, &budgets, &driver.actor.definitions)
                .await
                .unwrap();
        }
        let gone = departed::latest(&mut driver.conn, 9).await.unwrap();
        let told = |gone: &[Departed]| -> Vec<_> {
            gone.iter().map(|it| (it.id, it.death.clone())).collect()
        };
        let killed = (killed, Some("killed by SIGKILL".to_owned()));
        assert_eq!(told(&gone), [killed.clone(), (orderly, None)]);
        let rows = process::processes(&mut driver.conn).await.unwrap();
        let alive: Vec<_> = rows.iter().map(|row| row.id).collect();
        assert!(alive.contains(&living) && !alive.contains(&orderly));
        assert_eq!((gone[0].host.as_str(), gone[0].pid), (rows[0].host.as_str(), rows[0].pid));
        assert!(gone[0].gone_at >= gone[0].started_at);

        let last = departed::latest(&mut driver.conn, 1).await.unwrap();
        assert_eq!(told(&last), [killed]);
        prune::prune(&mut driver.conn, Duration::from_secs(3_600), 9).await.unwrap();
        assert_eq!(departed::latest(&mut driver.conn, 9).await.unwrap().len(), 2);
        prune::prune(&mut driver.conn, Duration::ZERO, 9).await.unwrap();
        assert_eq!(departed::latest(&mut driver.conn, 9).await.unwrap(), []);
    }
    async fn a_lost_supervisor_is_told_of_however_many_others_departed_since(db: Db) {
        let mut driver = Driver::new(&db).await;
        let mut lost = Vec::new();
        for how in [None, Some("killed by SIGKILL")] {
            let supervisor = process_of(None);
            let supervisor = process::NewProcess { role: Role::Supervisor, ..supervisor };
            process::register(&mut driver.conn, &supervisor).await.unwrap();
            let Some(how) = how else {
                process::deregister(&mut driver.conn, supervisor.id).await.unwrap();
                continue;
            };
            let death = Death::Proven { how };
            let budgets = |_: &_, _: &str| limits(1, 1);
            recovery::recover(&mut driver.actor.conn, supervisor.id, death, &budgets, &driver.actor.definitions)
                .await
                .unwrap();
            lost.push(supervisor.id);
        }
        depart(&mut driver.conn, 600).await;
        let now = query::now(&mut driver.conn).await.unwrap();
        let told = departed::lost_lately(&mut driver.conn, now).await.unwrap();
        assert_eq!(told.iter().map(|it| it.id).collect::<Vec<_>>(), lost);
        // No longer than for an hour.
        ago(&mut driver.conn, Duration::from_secs(3_601)).await;
        assert_eq!(departed::lost_lately(&mut driver.conn, now).await.unwrap(), []);
    }

    async fn a_supervisor_that_was_declared_dead_and_went_on_is_not_lost(db: Db) {
        let mut driver = Driver::new(&db).await;
        let supervisor = process::NewProcess { role: Role::Supervisor, ..process_of(None) };
        process::register(&mut driver.conn, &supervisor).await.unwrap();
        let of = |row: &process::NewProcess| process::NewProcess { supervisor: Some(row.id), ..process_of(None) };
        let (child, other) = (of(&supervisor), of(&process_of(None)));
        for row in [&child, &other] {
            process::register(&mut driver.conn, row).await.unwrap();
        }
        let budgets = |_: &_, _: &str| limits(1, 1);
        let death = Death::Proven { how: "its heartbeat stopped" };
        recovery::recover(&mut driver.actor.conn, supervisor.id, death, &budgets, &driver.actor.definitions)
            .await
            .unwrap();
        let now = query::now(&mut driver.conn).await.unwrap();
        assert_eq!(departed::lost_lately(&mut driver.conn, now).await.unwrap().len(), 1);

        let again = process::NewProcess { id: ProcessId::new(), ..supervisor.clone() };
        process::register_anew(&mut driver.conn, &again, supervisor.id).await.unwrap();
        assert_eq!(departed::lost_lately(&mut driver.conn, now).await.unwrap(), []);
        let gone = departed::latest(&mut driver.conn, 9).await.unwrap();
        assert_eq!(gone[0].death.as_deref(), Some("its heartbeat stopped"));
        assert_eq!(gone[0].went_on_as, Some(again.id));
        let told = format!("its heartbeat stopped; it lived, and went on as {}", short(again.id));
        assert_eq!(gone[0].how(), Some(told));
        // Its child is adopted, and no other.
        for row in [&child, &other] {
            process::adopt(&mut driver.conn, row.id, supervisor.id, again.id).await.unwrap();
        }
        let rows = process::processes(&mut driver.conn).await.unwrap();
        let above = |id| rows.iter().find(|row| row.id == id).unwrap().supervisor;
        assert_eq!((above(child.id), above(other.id)), (Some(again.id), other.supervisor));
    }

    async fn processes_that_are_gone_are_forgotten_where_no_run_is_old_enough(db: Db) {
        let mut driver = Driver::new(&db).await;
        let (lease, hour) = (Duration::from_secs(30), Duration::from_secs(3_600));
        for (retention, age) in [(Some(hour), hour), (Some(2 * REMEMBERED_AT_MOST), REMEMBERED_AT_MOST), (None, REMEMBERED_AT_MOST)] {
            // More than one batch.
            depart(&mut driver.conn, 510).await;
            ago(&mut driver.conn, age - Duration::from_secs(600)).await;
            assert!(!left_to_do(&mut driver.conn, retention, lease).await.unwrap());
            let mut pruning = Pruning::of(retention, u64::MAX);
            while pruning.step(&mut driver.conn).await.unwrap() {}
            assert_eq!(departed::latest(&mut driver.conn, 600).await.unwrap().len(), 510);
            ago(&mut driver.conn, Duration::from_secs(600)).await;
            depart(&mut driver.conn, 1).await;
            assert!(left_to_do(&mut driver.conn, retention, lease).await.unwrap());
            let mut pruning = Pruning::of(retention, u64::MAX);
            assert!(pruning.step(&mut driver.conn).await.unwrap());
            assert_eq!(departed::latest(&mut driver.conn, 600).await.unwrap().len(), 11);
            while pruning.step(&mut driver.conn).await.unwrap() {}
            assert_eq!(departed::latest(&mut driver.conn, 600).await.unwrap().len(), 1);
            assert!(!left_to_do(&mut driver.conn, retention, lease).await.unwrap());
            ago(&mut driver.conn, 2 * REMEMBERED_AT_MOST).await;
            while pruning.step(&mut driver.conn).await.unwrap() {}
        }
    }
}
