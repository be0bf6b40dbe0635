//! Strangers: visitors with invalid tokens hold up nobody else.

use std::collections::BTreeMap;
use std::io::{Read, Write};

use crate::fixture::*;
use crate::http::Console;
use crate::support::Db;
use crate::visitors::*;

/// The address of a stranger, on this host.
const STRANGER: &str = "127.0.0.2";

/// A secret of this form that does not exist.
fn guess(id: &str) -> String {
    format!("dw_{id}_{}", "1".repeat(64))
}

/// Guesses from the stranger's address, as fast as they are answered, until one is refused.
async fn guessed(console: &Console, secret: &str) {
    eventually(PATIENCE, "one guess is too much", async || {
        for _ in 0..60 {
            let guess = Ask::get("/api/v1/stats").bearer(secret);
            if guess.from(console, STRANGER).await.status == 429 {
                return Some(());
            }
        }
        None
    })
    .await;
}

#[tokio::test]
async fn a_token_is_good_for_so_many_requests_a_second_and_guesses_for_fewer() {
    let db = Db::sqlite();
    let (fixture, mut daemon, console) = started(&db, KNOWN).await;
    let secret = token(&fixture, &[]);
    let mut met = BTreeMap::new();
    // As fast as they can be answered, until one is refused.
    eventually(PATIENCE, "one is too much", async || {
        for _ in 0..100 {
            let answer = Ask::get("/api/v1/stats").bearer(&secret).of(&console);
            *met.entry(answer.status).or_insert(0) += 1;
        }
        met.contains_key(&429).then_some(())
    })
    .await;
    assert!(met[&200] >= 50, "{met:?}");
    let guess = guess(&"0".repeat(12));
    eventually(PATIENCE, "one guess is too much", async || {
        let mut statuses =
            (0..60).map(|_| Ask::get("/api/v1/stats").bearer(&guess).of(&console).status);
        statuses.any(|status| status == 429).then_some(())
    })
    .await;
    // A token that was used before is not held up by the guesses.
    eventually(PATIENCE, "the token counts", async || {
        for _ in 0..60 {
            Ask::get("/api/v1/stats").bearer(&guess).of(&console);
        }
        (Ask::get("/api/v1/stats")
            .bearer(&secret)
            .of(&console)
            .status
            == 200)
            .then_some(())
    })
    .await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_stranger_holds_up_no_token_and_no_sign_in_from_elsewhere() {
    let db = Db::sqlite();
    let (fixture, mut daemon, console) = started(&db, KNOWN).await;
    // Neither of them has been used at this console before.
    let (secret, other) = (token(&fixture, &[]), token(&fixture, &[]));
    let unknown = guess(&"0".repeat(12));
    guessed(&console, &unknown).await;
    let known = Ask::get("/api/v1/stats").bearer(&secret).of(&console);
    guessed(&console, &unknown).await;
    let let_in = Ask::form("/sign-in", &format!("secret={other}")).of(&console);
    assert_eq!(
        (known.status, let_in.status),
        (200, 303),
        "{known:?} {let_in:?}"
    );
    daemon.stop().await;
}

#[tokio::test]
async fn a_visitor_who_reads_long_payloads_slowly_leaves_room_for_others() {
    let db = Db::sqlite();
    let (mut fixture, mut daemon, console) = started(&db, KNOWN).await;
    let long = format!("\"{}\"", "x".repeat(12 << 20));
    let run = fixture.trigger("Plain", &long, 1).await[0];
    let path = format!("/runs/{run}/input");
    let [one, other] = ["one", "other"].map(|name| {
        let secret = printed(&fixture, &["token", "create", name]);
        Ask::form("/sign-in", &format!("secret={secret}"))
            .of(&console)
            .cookie()
    });
    // From one address, as behind a proxy.
    let begun = |cookie: &str| {
        let mut stream = std::net::TcpStream::connect(&console.address).unwrap();
        let (host, mut status) = (&console.address, [0; 12]);
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: {host}\r\nCookie: {cookie}\r\n\r\n"
        )
        .unwrap();
        stream.read_exact(&mut status).unwrap();
        (String::from_utf8(status[9..].to_vec()).unwrap(), stream)
    };
    let slow: Vec<_> = (0..3).map(|_| begun(&one)).collect();
    assert!(slow.iter().all(|(status, _)| status == "200"), "{slow:?}");
    let refused = Ask::get(&path).cookie(&one).of(&console);
    assert_eq!(
        (refused.status, refused.header("retry-after")),
        (503, Some("2"))
    );
    assert!(
        refused.body.contains("too little room for others"),
        "{refused:?}"
    );
    assert!(
        refused.body.contains("<span>one · read</span>"),
        "{refused:?}"
    );
    assert_eq!(begun(&other).0, "200");
    drop(slow);
    eventually(PATIENCE, "those who are gone make room", async || {
        (begun(&one).0 == "200").then_some(())
    })
    .await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_token_opens_a_bounded_number_of_sessions_and_goes_on_to_answer_programs() {
    let db = Db::sqlite();
    let (fixture, mut daemon, console) = started(&db, KNOWN).await;
    let (secret, other) = (token(&fixture, &[]), token(&fixture, &[]));
    let sign_in = |secret: &str| Ask::form("/sign-in", &format!("secret={secret}")).of(&console);
    let mut opened = 0;
    let refused = eventually(PATIENCE, "one is too many", async || {
        let answer = sign_in(&secret);
        opened += usize::from(answer.status == 303);
        // A refusal for a second is that of 50 requests a second.
        (answer.status == 429 && answer.header("retry-after") != Some("1")).then_some(answer)
    })
    .await;
    assert_eq!(opened, 60, "{refused:?}");
    assert!(refused.body.contains("signed in 60 times"), "{refused:?}");
    assert_eq!(sign_in(&other).status, 303, "another token");
    eventually(PATIENCE, "a program is answered", async || {
        let answer = Ask::get("/api/v1/stats").bearer(&secret).of(&console);
        (answer.status == 200).then_some(())
    })
    .await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_wrong_secret_for_the_id_of_a_token_counts_as_a_guess_and_takes_nothing_from_the_token() {
    let db = Db::sqlite();
    let (fixture, mut daemon, console) = started(&db, KNOWN).await;
    let secret = token(&fixture, &[]);
    let wrong = guess(secret.split('_').nth(1).unwrap());
    let sent = |secret: &str| Ask::get("/api/v1/stats").bearer(secret);
    assert_eq!(sent(&secret).of(&console).status, 200);
    assert_eq!(sent(&wrong).of(&console).status, 401);
    // Both while the console remembers the token, and when it has to look it up again.
    for _ in 0..3 {
        guessed(&console, &wrong).await;
        let own = sent(&secret).from(&console, STRANGER).await;
        assert_eq!(
            own.status, 200,
            "the same address with the right one: {own:?}"
        );
    }
    daemon.stop().await;
}
