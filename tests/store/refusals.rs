//! The party at fault when the database refuses something.

use ductwork::store::{Dialect, Error};

use crate::on_every_database;
use crate::support::Db;

on_every_database! {
    /// A wrong value stays wrong forever; a fault of the database is repaired.
    async fn a_refusal_blames_the_value_or_the_database(db: Db) {
        let mut conn = db.conn().await;
        let values: &[&str] = match conn.dialect() {
            Dialect::Postgres => &["SELECT 'a' || chr(0)", "SELECT repeat('a', 1073741824)"],
            Dialect::Sqlite => &["SELECT zeroblob(2147483647)"],
            Dialect::Mysql => &[
                "INSERT INTO ductwork_definitions VALUES (repeat('x', 200), 'b', 'c', 1)",
                "INSERT INTO ductwork_definitions VALUES ('x', 'b', x'ff', 1)",
            ],
        };
        for value in values {
            let error = conn.script("too much", value).await.unwrap_err();
            assert!(matches!(error, Error::Refused { .. }), "{error:?}");
            assert!(error.blames_the_value(), "{error:?}");
        }
        let twice = "INSERT INTO ductwork_definitions VALUES ('a', 'b', 'c', 1), ('a', 'b', 'c', 1)";
        let error = conn.script("twice", twice).await.unwrap_err();
        assert!(error.blames_the_value(), "{error:?}");
        let raise = match conn.dialect() {
            Dialect::Postgres => "DO $$ BEGIN RAISE EXCEPTION 'not that'; END $$",
            Dialect::Sqlite => "CREATE TEMP TRIGGER no BEFORE INSERT ON ductwork_definitions
                                BEGIN SELECT RAISE(ABORT, 'not that'); END;
                                INSERT INTO ductwork_definitions VALUES ('c', 'b', 'c', 1)",
            Dialect::Mysql => "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'not that'",
        };
        let error = conn.script("raise", raise).await.unwrap_err();
        assert!(error.blames_the_value(), "{error:?}");
        let gone = "INSERT INTO ductwork_nothing VALUES ('a')";
        let error = conn.script("gone", gone).await.unwrap_err();
        assert!(matches!(error, Error::Refused { .. }), "{error:?}");
        assert!(!error.blames_the_value(), "{error:?}");
    }
}
