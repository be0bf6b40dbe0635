//! Every statement of the product that a MySQL server can be asked, looked at by a real one.

use ductwork::store::Dialect;
use ductwork::store::catalogue::catalogue;

use crate::with;

/// Those that need another form, and have none yet.
const WITHOUT_A_FORM: &[&str] = &[
    // They write, and answer with what they wrote.
    "TOUCH_PROCESS", "TAKE_READABLE", "DUE_AGAIN", "READY_AGAIN", "ARRIVE", "LEASE_DELIVERIES", "RECORD_DELIVERIES", "BEAT",
    // It writes over a row only where a condition holds.
    "TAKE_DUTY",
    // Its subquery has a limit.
    "FORGET_SERIES",
    // A table within a subquery names a column of what is around it.
    "QUEUES",
    // It groups by a column that the server does not know again.
    "INSERT_AVAILABILITIES",
];

#[tokio::test]
async fn a_server_understands_every_statement_that_has_a_form_for_it() {
    with(|_sandbox, mut conn| async move {
        let mut wrong = Vec::new();
        let mut fine = 0;
        for statement in catalogue() {
            if !statement.is_for(Dialect::Mysql) {
                continue;
            }
            let rendered = std::panic::catch_unwind(|| statement.sql(Dialect::Mysql));
            let checked = match rendered {
                Ok(_) => conn.check(statement).await.map_err(|error| format!("{error:?}")),
                Err(_) => Err("it has a fragment without a form".to_owned()),
            };
            match (checked, WITHOUT_A_FORM.contains(&statement.name)) {
                (Ok(()), false) => fine += 1,
                (Ok(()), true) => wrong.push(format!("{} has a form: take it from the list", statement.name)),
                (Err(_), true) => {}
                (Err(error), false) => wrong.push(format!("{}: {error}", statement.name)),
            }
        }
        conn.close().await;
        assert!(wrong.is_empty(), "{fine} are fine, {} are not:\n{}", wrong.len(), wrong.join("\n"));
    })
    .await;
}
