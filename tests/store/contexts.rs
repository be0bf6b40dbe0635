//! The context of a run: the entries that are listed at a time, and the attempts that may still set
//! one.

use std::time::{Duration, Instant};

use ductwork::definition::Pipeline;
use ductwork::model::{ExecutionId, ProcessId, RunId};
use ductwork::store::{batch_size, context, fault_injection};

use crate::driver::Driver;
use crate::support::Db;
use crate::{on_every_database, on_servers};

on_every_database! {
    async fn a_context_is_listed_in_parts_that_can_be_held(db: Db) {
        let mut driver = Driver::new(&db).await;
        let definition = Pipeline::named("P").start("A").build().unwrap();
        let run = driver.trigger(&definition, "1").await;
        let conn = &mut driver.conn;
        let half = format!("\"{}\"", "x".repeat(batch_size::BYTES_MAX / 2));
        for (key, value) in [("a", "1"), ("b", &half), ("c", &half), ("d", "2")] {
            assert!(context::set(conn, run, key, value).await.unwrap());
        }
        let mut after = String::new();
        let mut parts = Vec::new();
        loop {
            let part = context::list(conn, run, &after).await.unwrap();
            let keys: Vec<String> = part.into_iter().map(|tuple| tuple.key).collect();
            let Some(last) = keys.last() else { break };
            after.clone_from(last);
            parts.push(keys.concat());
        }
        assert_eq!(parts, ["ab", "cd"]);
    }

    async fn an_attempt_that_was_taken_away_sets_nothing(db: Db) {
        let mut driver = Driver::new(&db).await;
        let definition = Pipeline::named("P").start("A").build().unwrap();
        let run = driver.trigger(&definition, "1").await;
        let claimed = driver.claim("P", 1).await.remove(0);
        let process = driver.process;
        let writer = context::Writer { run, execution: claimed.execution_id, process };
        assert!(context::set_as(&mut driver.conn, writer, "k", "1").await.unwrap());
        for wrong in [
            context::Writer { run: RunId::new(), ..writer },
            context::Writer { execution: ExecutionId::new(), ..writer },
            context::Writer { process: ProcessId::new(), ..writer },
        ] {
            assert!(!context::set_as(&mut driver.conn, wrong, "k", "2").await.unwrap(), "{wrong:?}");
        }
        driver.recover(process).await;
        assert!(!context::set_as(&mut driver.conn, writer, "k", "2").await.unwrap());
        let kept = context::get(&mut driver.conn, run, "k").await.unwrap().expect("it was set");
        assert_eq!(kept.value, "1");
    }
}

on_servers! {
    /// The reaper has closed the attempt but not committed yet: the reaper's write counts, the attempt's
    /// does not.
    async fn an_attempt_that_is_being_taken_away_waits_and_sets_nothing(db: Db) {
        let mut driver = Driver::new(&db).await;
        driver.audited = false;
        let definition = Pipeline::named("P").start("A").build().unwrap();
        let run = driver.trigger(&definition, "1").await;
        let claimed = driver.claim("P", 1).await.remove(0);
        let writer = context::Writer {
            run,
            execution: claimed.execution_id,
            process: driver.process,
        };
        let mut reaps = db.conn().await;
        let close = "UPDATE ductwork_executions SET completed_at = 1, result = 'process_crashed'";
        for script in ["BEGIN", close] {
            reaps.script("CLOSE", script).await.unwrap();
        }
        let mut sets = db.conn().await;
        let setting = fault_injection::session(&mut sets).await.unwrap().unwrap();
        let set = tokio::task::spawn_local(async move {
            context::set_as(&mut sets, writer, "k", "1").await.unwrap()
        });
        let started = Instant::now();
        while !set.is_finished()
            && !fault_injection::waits(&mut driver.conn, setting)
                .await
                .unwrap()
        {
            assert!(started.elapsed() < Duration::from_secs(20));
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        reaps.script("COMMIT", "COMMIT").await.unwrap();
        assert!(!set.await.unwrap(), "a zombie's write counted");
        let kept = context::get(&mut driver.conn, run, "k").await.unwrap();
        assert_eq!(kept, None);
    }
}
