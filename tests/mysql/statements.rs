//! Every statement of the product that can be sent to a MySQL server, checked by a real one.

use ductwork::store::Dialect;
use ductwork::store::catalogue::catalogue;

use crate::with;

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
                Ok(_) => conn
                    .check(statement)
                    .await
                    .map_err(|error| format!("{error:?}")),
                Err(_) => Err("it has a fragment without a form".to_owned()),
            };
            match checked {
                Ok(()) => fine += 1,
                Err(error) => wrong.push(format!("{}: {error}", statement.name)),
            }
        }
        conn.close().await;
        assert!(
            wrong.is_empty(),
            "{fine} are fine, {} are not:\n{}",
            wrong.len(),
            wrong.join("\n")
        );
    })
    .await;
}
