//! The schema, and what is kept beside the runs.

use ductwork::definition::Pipeline;
use ductwork::model::RunId;
use ductwork::store::{context, migrate};

use crate::driver::{Driver, together};
use crate::on_every_database;
use crate::support::Db;

on_every_database! {
    async fn four_supervisors_that_start_at_once_migrate_once(db: Db) {
        let migrations = together((0..4).map(|_| {
            let db = db.clone();
            async move {
                let mut conn = db.connect().await;
                let done = migrate::migrate(&mut conn).await.expect("a schema");
                migrate::check(&mut conn).await.expect("it is complete");
                done.len()
            }
        }));
        let applied: usize = migrations.await.into_iter().sum();
        assert_eq!(applied, migrate::MIGRATIONS.len());
    }

    async fn a_database_without_our_tables_is_not_checked_as_ours(db: Db) {
        let mut conn = db.connect().await;
        let error = migrate::check(&mut conn).await.expect_err("nothing is there");
        assert!(error.to_string().contains("ductworkd migrate"), "{error}");
    }

    async fn context_keeps_the_last_value_and_the_first_time(db: Db) {
        let mut driver = Driver::new(&db).await;
        let definition = Pipeline::named("P").start("A").build().unwrap();
        let run = driver.trigger(&definition, "1").await;
        let conn = &mut driver.conn;
        assert!(context::set(conn, run, "k", "\"\\u0000\"").await.unwrap());
        let first = context::get(conn, run, "k").await.unwrap().expect("it was set");
        assert_eq!(first.value, "\"\\u0000\"");
        assert!(context::set(conn, run, "k", "2").await.unwrap());
        assert!(context::set(conn, run, "a", "[]").await.unwrap());
        let all = context::list(conn, run).await.unwrap();
        assert_eq!(all.iter().map(|t| t.key.as_str()).collect::<Vec<_>>(), ["a", "k"]);
        assert_eq!(all[1].value, "2");
        assert_eq!(all[1].first_set_at, first.first_set_at);
        assert!(all[1].last_set_at >= first.last_set_at);
        assert!(!context::set(conn, RunId::new(), "k", "1").await.unwrap());
        assert!(context::delete(conn, run, "k").await.unwrap());
        assert!(!context::delete(conn, run, "k").await.unwrap());
        assert_eq!(context::get(conn, run, "k").await.unwrap(), None);
    }
}
