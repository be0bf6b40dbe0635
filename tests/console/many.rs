//! More halted runs, and more pipelines, than a page looks at.

use std::time::Duration;

use ductwork::store::statement::{Rows, Statement};

use crate::on_every_database;
use crate::support::Db;
use crate::visitors::*;

on_every_database! {
    /// Of 10 pipelines with halted runs, the newest 200 of each are looked at, and each of these was revived.
    async fn older_halted_runs_are_not_denied_when_all_newer_ones_were_revived(db: Db) {
        static HALT: Statement = Statement::new(
            "TEST_HALT",
            "UPDATE ductwork_runs SET status = 'halted', halted_at = 1 WHERE pipeline <> 'Halts'",
        );
        static NAMED: Statement = Statement::new(
            "TEST_NAMED",
            "UPDATE {into:ductwork_runs;b(id id, name text)} SET pipeline = b.name {from:b(id id, name text)}
              WHERE {key:ductwork_runs.id;b.id}",
        );
        static REVIVED: Statement = Statement::new(
            "TEST_REVIVED",
            "UPDATE {into:ductwork_runs;b(id id, origin id)} SET revived_from = b.origin {from:b(id id, origin id)}
              WHERE {key:ductwork_runs.id;b.id}",
        );
        let (mut fixture, mut daemon, console) = started(&db, ANYBODY).await;
        let later = Duration::from_secs(3_600);
        let mut halted = fixture.trigger_in(later, "Plain", "1", 201).await;
        halted.sort();
        let others = fixture.trigger_in(later, "Asks", "1", 9).await;
        let names: Vec<String> = (0..9).map(|n| format!("P{n}")).collect();
        let rows = Rows::new().ids("id", others.iter().copied());
        let rows = rows.texts("name", names.iter().map(String::as_str));
        fixture.conn.execute(&NAMED, &[("b", (&rows).into())]).await.unwrap();
        fixture.conn.execute(&HALT, &[]).await.unwrap();
        let successors = fixture.trigger_in(later, "Halts", "1", 200 + 9).await;
        let rows = Rows::new().ids("id", successors);
        let rows = rows.ids("origin", halted.into_iter().skip(1).chain(others));
        fixture.conn.execute(&REVIVED, &[("b", (&rows).into())]).await.unwrap();
        for path in ["/", "/halted"] {
            let page = console.get(path);
            assert_eq!(page.status, 200, "{path}: {page:?}");
            assert!(page.body.contains("None of the newest 209 halted runs is left"), "{path}: {page:?}");
            assert!(!page.body.contains("No halted runs"), "{path}: {page:?}");
        }
        // Of one pipeline alone, more are looked at.
        let one = console.get("/halted?pipeline=Plain").body;
        assert!(one.contains("</span> 1</span> Plain"), "{one}");
        daemon.stop().await;
    }

    async fn a_key_is_looked_up_in_a_few_pipelines_and_among_many_in_the_given_one(db: Db) {
        static PIPELINES: Statement = Statement::new(
            "TEST_PIPELINES",
            "INSERT INTO ductwork_definitions (digest, pipeline, body, created_at)
             SELECT b.name, b.name, 'x', 1 FROM {rows:b(name text)}",
        );
        let (mut fixture, mut daemon, console) = started(&db, ANYBODY).await;
        let run = printed(&fixture, &["trigger", "Plain", "1", "--key", "order-7"]);
        let found = console.get("/runs?key=order-7");
        assert!(found.status == 200 && found.body.contains(&run), "{found:?}");
        let names: Vec<String> = (0..20).map(|n| format!("P{n}")).collect();
        let rows = Rows::new().texts("name", names.iter().map(String::as_str));
        fixture.conn.execute(&PIPELINES, &[("b", (&rows).into())]).await.unwrap();
        let refused = console.get("/runs?key=order-7");
        assert_eq!(refused.status, 400, "{refused:?}");
        assert!(refused.body.contains("there are more than 20 pipelines: choose one"), "{refused:?}");
        for (pipeline, has_it) in [("Plain", true), ("P1", false), ("Nobody", false)] {
            let found = console.get(&format!("/runs?key=order-7&pipeline={pipeline}"));
            assert_eq!((found.status, found.body.contains(&run)), (200, has_it), "{pipeline}: {found:?}");
        }
        daemon.stop().await;
    }
}
