//! Values so large that few of them fit together.

use std::time::Duration;

use ductwork::definition::{Definition, Pipeline};
use ductwork::model::ExecutionId;
use ductwork::store::Dialect;
use ductwork::store::batch_size::BYTES_MAX;
use ductwork::store::claim::{self, Claim, Rest};
use ductwork::store::cursor::Cursor;
use ductwork::store::definition::LeftOut;
use ductwork::store::process::Claimant;
use ductwork::store::trigger::{self, NewRun};
use serde_json::{Value, json};

use crate::driver::{Did, Driver, LEASE, input};
use crate::on_every_database;
use crate::support::Db;

/// A size of which two fit together, but not three.
const LARGE: usize = BYTES_MAX * 2 / 5;

fn text(bytes: usize) -> Value {
    json!("x".repeat(bytes))
}

fn one() -> Definition {
    Pipeline::named("P").start("A").build().unwrap()
}

async fn trigger(driver: &mut Driver, inputs: &[String]) -> u64 {
    let runs = inputs.iter().map(|input| NewRun { key: None, input });
    let runs: Vec<NewRun<'_>> = runs.collect();
    driver.conn.take_statements();
    let triggered = trigger::trigger(&mut driver.conn, &one(), &runs, Duration::ZERO).await;
    assert_eq!(triggered.unwrap().len(), runs.len());
    driver.conn.take_statements()
}

on_every_database! {
    async fn a_trigger_sends_no_more_inputs_at_once_than_fit(db: Db) {
        let mut driver = Driver::new(&db).await;
        let (small, large) = (json!(1).to_string(), text(LARGE).to_string());
        trigger(&mut driver, std::slice::from_ref(&small)).await;
        let all = trigger(&mut driver, &[&small; 5].map(String::clone)).await;
        let each = trigger(&mut driver, &[&large; 5].map(String::clone)).await;
        // If everything is one statement and that would be too long, its rows are sent beforehand: emptied, filled,
        // read. MySQL gets each statement alone.
        let at_once = driver.conn.dialect() == Dialect::Mysql && all == 1;
        let trips = if at_once { 3 } else { 1 };
        assert_eq!(each, 3 * trips * all);
        let count = driver.claim("P", 6).await.len();
        assert_eq!(count, 6);
    }

    /// The stored input of a key's run is read only where it could be the same as the new one.
    async fn a_key_knows_its_input_whatever_the_lengths_of_those_it_is_asked_with(db: Db) {
        let mut driver = Driver::new(&db).await;
        let (stored, same_length) = (text(9).to_string(), text(8).to_string() + " ");
        let asked = ["1", &stored, &same_length, "1", &stored];
        let runs = asked.map(|input| NewRun { key: Some("k"), input });
        let differ = [true, false, true, true, false];
        // At first the trigger makes the run, then the run exists already.
        for first in [1, 0] {
            let runs = &runs[first..];
            let triggered = trigger::trigger(&mut driver.conn, &one(), runs, Duration::ZERO).await;
            let triggered = triggered.unwrap();
            let differs: Vec<bool> = triggered.iter().map(|run| run.input_differs).collect();
            assert_eq!(differs, differ[first..]);
        }
    }

    /// White space and escapes may be longer than any multiple of the value.
    async fn a_key_knows_its_input_however_much_longer_that_was_written(db: Db) {
        let mut driver = Driver::new(&db).await;
        let short = format!("[{}]", text(30_000));
        let escaped = format!("[\"{}\"]", "\\u0078".repeat(30_000));
        let indented = format!("[{}{}]", " ".repeat(300_000), text(30_000));
        let other = format!("[{}{}]", " ".repeat(300_000), text(30_001));
        for (stored, differs) in [(&escaped, false), (&indented, false), (&other, true)] {
            let key = stored.len().to_string();
            for (input, expected) in [(stored, false), (&short, differs)] {
                let runs = [NewRun { key: Some(&key), input }];
                let made = trigger::trigger(&mut driver.conn, &one(), &runs, Duration::ZERO).await;
                assert_eq!(made.unwrap()[0].input_differs, expected, "{key}");
            }
            let again = NewRun { key: Some(&key), input: &short };
            let again = trigger::repeated(&mut driver.conn, "P", &again).await.unwrap().unwrap();
            assert_eq!((again.created, again.input_differs), (false, differs), "{key}");
        }
        for key in [None, Some("another")] {
            let new = NewRun { key, input: &short };
            assert_eq!(trigger::repeated(&mut driver.conn, "P", &new).await.unwrap(), None);
        }
    }

    /// Object keys may come in any order; everything else is compared as it was written, so that no
    /// digit is overlooked.
    async fn a_key_knows_its_input_whatever_the_order_of_its_keys(db: Db) {
        let mut driver = Driver::new(&db).await;
        for (at, (stored, asked, differs)) in [
            (r#"[{"a":1,"b":{"c":2,"d":3}}]"#, r#"[{"b":{"d":3,"c":2},"a":1}]"#, false),
            (r#"[{"a":1,"b":{"c":2,"d":3}}]"#, r#"[{"b":{"d":2,"c":3},"a":1}]"#, true),
            (r#"{"a":1}"#, r#"{"b":1}"#, true),
            ("[1,2]", "[2,1]", true),
            ("[12345678901234567890123]", "[12345678901234567890132]", true),
            ("[1,23]", "[12,3]", true),
        ]
        .into_iter()
        .enumerate()
        {
            let key = at.to_string();
            for (input, expected) in [(stored, false), (asked, differs)] {
                let runs = [NewRun { key: Some(&key), input }];
                let made = trigger::trigger(&mut driver.conn, &one(), &runs, Duration::ZERO).await;
                assert_eq!(made.unwrap()[0].input_differs, expected, "{stored} {input}");
            }
        }
    }

    async fn a_claim_takes_no_more_inputs_than_fit_and_leaves_the_others_to_be_put_back(db: Db) {
        let mut driver = Driver::new(&db).await;
        let huge = text(BYTES_MAX).to_string();
        let mut inputs = vec![text(LARGE).to_string(); 5];
        inputs.insert(4, huge.clone());
        inputs.push("1".to_owned());
        for input in &inputs {
            driver.trigger(&one(), input).await;
        }
        let me = Claimant::new(driver.process);
        let mut taken = 0;
        for fit in [2, 2, 1, 2] {
            let conn = &mut driver.actor.conn;
            let claimed = claim::claim_behind(conn, Cursor::FIRST, me, "P", 9, LEASE, &LeftOut::default()).await;
            let (Claim::Taken(claimed), Rest { excess, .. }) = claimed.unwrap() else {
                panic!("it lives")
            };
            assert_eq!(claimed.len(), fit);
            for claimed in &claimed {
                assert!(inputs.iter().any(|input| *input == claimed.input.get()));
            }
            taken += fit;
            assert_eq!(excess.len(), inputs.len() - taken);
            // Until they are put back, they are held as well. Small held executions are read again.
            let held = claim::held(conn, driver.actor.process).await.unwrap();
            assert_eq!(held.whole.len(), 1);
            assert_eq!(held.whole.len() + held.large.len(), inputs.len());
            let back: &[ExecutionId] = &excess;
            assert_eq!(claim::put_back(conn, me, "P", back, Duration::ZERO).await.unwrap(), back.len());
        }
        driver.audit().await;
    }

    /// A caller that uses only the first result need not know about the excess.
    async fn a_plain_claim_puts_back_what_does_not_fit(db: Db) {
        let mut driver = Driver::new(&db).await;
        for _ in 0..3 {
            driver.trigger(&one(), &text(LARGE).to_string()).await;
        }
        assert_eq!(driver.claim("P", 9).await.len(), 2);
        assert_eq!(driver.claim("P", 9).await.len(), 1);
        driver.audit().await;
    }

    async fn an_expand_makes_no_more_elements_per_transaction_than_fit(db: Db) {
        let mut driver = Driver::new(&db).await;
        driver.audited = false;
        let flow = Pipeline::named("P").start("A").expand("B").build().unwrap();
        let mut counts = Vec::new();
        for bytes in [1, BYTES_MAX * 3 / 4] {
            driver.trigger(&flow, "1").await;
            let claimed = driver.claim("P", 1).await.remove(0);
            let elements = json!([text(bytes), text(bytes + 1)]);
            let finished = driver.finished(claimed, Did::Returned(elements)).await;
            driver.commit(&[finished]).await;
            let mut spreading = driver.claim_branches(1).await;
            let mut transactions = 0;
            while !spreading.is_empty() {
                spreading = driver.advance(&spreading).await.spreading;
                transactions += 1;
            }
            counts.push(transactions);
            let mut claimed = driver.claim("P", 2).await;
            claimed.extend(driver.claim("P", 2).await);
            let lengths = claimed.iter().map(|it| input(it).as_str().unwrap().len());
            assert_eq!(lengths.collect::<Vec<_>>(), [bytes, bytes + 1]);
        }
        assert_eq!(counts, [1, 2]);
    }
}
