//! Servers and addresses, the right ones and the wrong ones: what a person is told.

use ductwork::store::{Conn, Error, Location, Purpose};

use crate::{text, url};

async fn connect(url: &str) -> Result<Conn, Error> {
    Location::parse(url)?.connect(Purpose::Engine).await
}

/// The whole message, as a person sees it.
async fn told(url: &str) -> String {
    match connect(url).await {
        Ok(_) => panic!("{url} can be worked with"),
        Err(error) => {
            let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
            format!("{error}{}", cause.unwrap_or_default())
        }
    }
}

#[tokio::test]
async fn a_session_is_what_the_engine_counts_on() {
    let mut conn = connect(&url()).await.unwrap();
    assert_eq!(text(&mut conn, "SELECT @@collation_connection AS it").await, "utf8mb4_nopad_bin");
    assert_eq!(text(&mut conn, "SELECT @@tx_isolation AS it").await, "READ-COMMITTED");
    conn.close().await;
}
