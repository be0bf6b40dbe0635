//! Processes that are gone, and the information that is kept about them.

use std::time::Duration;

use ductwork::engine::actor::limits;
use ductwork::store::departed::{self, Departed};
use ductwork::store::process;
use ductwork::store::prune;
use ductwork::store::recovery::{self, Death};

use crate::driver::{Driver, register};
use crate::on_every_database;
use crate::support::Db;

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
}
