//! Servers and addresses, correct and wrong ones: the messages that a person gets.

use std::time::Duration;

use ductwork::store::{Conn, Error, Location, Purpose};

use crate::wire::{Wire, says};
use crate::{is_mariadb, rows, statement, text, url};

/// The directory of the server that scripts/mariadb made, with its certificates.
const DIRECTORY: &str = "DUCTWORK_TEST_MYSQL_DIR";

pub fn directory() -> String {
    std::env::var(DIRECTORY)
        .unwrap_or_else(|_| panic!("{DIRECTORY} is not set: run scripts/mariadb"))
}

/// User and password, host and port, database.
fn parts() -> [String; 3] {
    let url = url();
    let (login, rest) = url.split_once("://").unwrap().1.split_once('@').unwrap();
    let (host, database) = rest.split_once('/').unwrap();
    [login, host, database].map(str::to_owned)
}

fn to(host: &str, more: &str) -> String {
    let [login, _, database] = parts();
    format!("mysql://{login}@{host}/{database}{more}")
}

async fn connect(url: &str) -> Result<Conn, Error> {
    Location::parse(url)?.connect(Purpose::Engine).await
}

/// The whole message that a person sees, with its remedy.
async fn told(url: &str) -> String {
    match connect(url).await {
        Ok(_) => panic!("{url} can be worked with"),
        Err(error) => {
            let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
            let remedy = error.remedy().map(|remedy| format!(" ({remedy})"));
            format!(
                "{error}{}{}",
                cause.unwrap_or_default(),
                remedy.unwrap_or_default()
            )
        }
    }
}

#[tokio::test]
async fn a_session_is_what_the_engine_counts_on() {
    let mut conn = connect(&url()).await.unwrap();
    let both = [
        ("innodb_lock_wait_timeout", "3"),
        ("completion_type", "NO_CHAIN"),
        ("autocommit", "1"),
    ];
    let own = match is_mariadb(&mut conn).await {
        true => [
            ("collation_connection", "utf8mb4_nopad_bin"),
            ("tx_isolation", "READ-COMMITTED"),
            ("tx_read_only", "0"),
            ("idle_transaction_timeout", "10"),
            ("max_statement_time", "27.000000"),
            ("max_recursive_iterations", "4294967295"),
        ],
        false => [
            ("collation_connection", "utf8mb4_0900_bin"),
            ("transaction_isolation", "READ-COMMITTED"),
            ("transaction_read_only", "0"),
            ("wait_timeout", "60"),
            ("max_execution_time", "27000"),
            ("cte_max_recursion_depth", "4294967295"),
        ],
    };
    for (variable, value) in both.into_iter().chain(own) {
        let sql = format!("SELECT CAST(@@SESSION.{variable} AS CHAR) AS it");
        // Some servers return a word.
        let is = match text(&mut conn, sql).await.as_str() {
            "ON" => "1".to_owned(),
            "OFF" => "0".to_owned(),
            other => other.to_owned(),
        };
        assert_eq!(is, value, "{variable}");
    }
    conn.close().await;
    let page = Location::parse(&url())
        .unwrap()
        .connect(Purpose::Page)
        .await;
    let mut page = page.unwrap();
    let refused = page
        .script("WRITE", "CREATE TABLE ductwork_x (n int)")
        .await
        .unwrap_err();
    assert!(format!("{refused:?}").contains("1792"), "{refused:?}");
    page.close().await;
}

#[tokio::test]
async fn a_connection_is_as_safe_as_its_address_asks() {
    let (directory, [_, host, _]) = (directory(), parts());
    let port = host.split_once(':').unwrap().1;
    let [ca, certificate, key] =
        ["ca.pem", "client.pem", "client.key"].map(|file| format!("{directory}/tls/{file}"));
    // A name that is not in the certificate.
    let elsewhere = Wire::between("127.0.0.2", &host).at;
    let identity = format!("&ssl-cert={certificate}&ssl-key={key}");
    for (url, is_encrypted) in [
        (to(&host, ""), false),
        (to(&host, "?ssl-mode=disabled"), false),
        (to("", &format!("?socket={directory}/mysql.sock")), false),
        (to(&host, "?ssl-mode=required"), true),
        (to(&elsewhere.to_string(), "?ssl-mode=required"), true),
        (to(&host, &format!("?ssl-ca={ca}")), true),
        (
            to(
                &format!("localhost:{port}"),
                &format!("?ssl-mode=verify_identity&ssl-ca={ca}"),
            ),
            true,
        ),
        (
            to(&host, &format!("?ssl-mode=VERIFY_CA&ssl-ca={ca}{identity}")),
            true,
        ),
        (
            to(
                &elsewhere.to_string(),
                &format!("?ssl-mode=verify_ca&ssl-ca={ca}"),
            ),
            true,
        ),
    ] {
        let mut conn = connect(&url)
            .await
            .unwrap_or_else(|error| panic!("{url}: {error:?}"));
        let cipher: String = rows(&mut conn, "SHOW SESSION STATUS LIKE 'Ssl_cipher'")
            .await
            .unwrap()[0]
            .get("Value")
            .unwrap();
        assert_eq!(!cipher.is_empty(), is_encrypted, "{url}: {cipher}");
        conn.close().await;
    }
    let wrong_name = to(
        &elsewhere.to_string(),
        &format!("?ssl-mode=verify_identity&ssl-ca={ca}"),
    );
    let told_of = told(&wrong_name).await;
    assert!(
        told_of.contains("certificate not valid for name \"127.0.0.2\""),
        "{told_of}"
    );
    assert!(
        told_of.contains("let ssl-ca in `database.url` name the authority"),
        "{told_of}"
    );
    for mode in ["verify_identity", "verify_ca"] {
        let told_of = told(&to(&host, &format!("?ssl-mode={mode}"))).await;
        assert!(told_of.contains("UnknownIssuer"), "{mode}: {told_of}");
    }
}

const REACH: &str = "(check that the server is running, and that `database.url` is right)";

#[tokio::test]
async fn a_wrong_server_is_told_in_one_clear_line() {
    let (directory, [login, host, database]) = (directory(), parts());
    let user = login.split(':').next().unwrap();
    let closed = {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        free.local_addr().unwrap()
    };
    let empty = format!("{directory}/tls/openssl.cnf");
    let who = "(check the user and the password in `database.url`, and the host from which the server lets this user in)";
    // For an unknown user, MySQL names any of its authentication methods, even one that no client supports.
    let denied = "Access denied for user 'nobody'@'127.0.0.1' (using password: YES)";
    let unknown = "the server knows no such user, or one who logs in by sha256_password, which ductworkd does not";
    let nobody = format!("mysql://nobody:x@{host}/{database}");
    let stranger = told(&nobody).await;
    assert!(
        [denied, unknown]
            .iter()
            .any(|said| stranger == format!("the database cannot be used: {said} {who}")),
        "{stranger}"
    );
    for (url, says) in [
        (
            format!("mysql://{user}:wrong@{host}/{database}"),
            format!("the database cannot be used: Access denied for user '{user}'@'127.0.0.1' (using password: YES) {who}"),
        ),
        (
            format!("mysql://{user}@{host}/{database}"),
            format!("the database cannot be used: Access denied for user '{user}'@'127.0.0.1' (using password: NO) {who}"),
        ),
        (
            format!("mysql://{login}@{host}/nowhere"),
            "the database cannot be used: Unknown database 'nowhere' (create the database, or correct its name in \
             `database.url`)".to_owned(),
        ),
        (
            to(&closed.to_string(), ""),
            format!("the database cannot be reached: Connection refused (os error 111) {REACH}"),
        ),
        (
            to("", "?socket=/nowhere/mysql.sock"),
            format!("the database cannot be reached: No such file or directory (os error 2) {REACH}"),
        ),
        (
            to("", &format!("?socket={empty}")),
            format!("the database cannot be reached: Connection refused (os error 111) {REACH}"),
        ),
        (
            to(&says(b"", false).to_string(), ""),
            format!("the database cannot be reached: connection closed {REACH}"),
        ),
        (
            to(&says(b"HTTP/1.1 400 Bad Request\r\n\r\n", false).to_string(), ""),
            format!("the database cannot be reached: the program there is not a MySQL server {REACH}"),
        ),
        (
            to(&says(b"", true).to_string(), ""),
            format!("the database cannot be reached: no answer within 5 s {REACH}"),
        ),
        (
            to(&host, "?ssl-mode=verify_ca&ssl-ca=/nowhere/ca.pem"),
            "the database cannot be used: the file of ssl-ca, /nowhere/ca.pem: No such file or directory (os error 2)"
                .to_owned(),
        ),
        (
            to(&host, &format!("?ssl-mode=required&ssl-cert={directory}/tls/client.pem&ssl-key={empty}")),
            "the file of ssl-key in `database.url` holds no private key".to_owned(),
        ),
    ] {
        let is = told(&url).await;
        assert!(is.starts_with(&says), "{url}\n  is {is}\n not {says}");
        assert!(!is.contains('\n'), "{is}");
    }
}

/// A node that is gone costs its time limit, and no more.
#[tokio::test]
async fn the_next_address_is_tried_when_one_does_not_answer() {
    let [_, host, _] = parts();
    let closed = {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        free.local_addr().unwrap()
    };
    let silent = says(b"", true);
    let mut conn = connect(&to(&format!("{closed},{silent},{host}"), ""))
        .await
        .unwrap();
    assert_eq!(text(&mut conn, "SELECT 'here' AS it").await, "here");
    conn.close().await;
    // A mistake is the same at every node; a wrong password may concern one node only.
    let [_, _, database] = parts();
    let told = told(&format!("mysql://nobody:x@{closed},{host}/{database}")).await;
    assert!(told.contains("check the user and the password"), "{told}");
}

/// Its packets vanish, and neither side is told.
#[tokio::test]
async fn a_connection_that_falls_silent_is_given_up_and_its_socket_with_it() {
    let [_, host, _] = parts();
    let wire = Wire::between("127.0.0.1", &host);
    let location = Location::parse(&to(&wire.at.to_string(), "")).unwrap();
    let location = location.leased(Duration::from_secs(3));
    let mut conn = location.connect(Purpose::Lifeline).await.unwrap();
    assert_eq!(text(&mut conn, "SELECT 'here' AS it").await, "here");
    wire.fall_silent();
    let error = conn
        .fetch(statement("SELECT 1 AS it"), &[])
        .await
        .err()
        .unwrap();
    assert!(
        matches!(
            &error,
            Error::Unavailable {
                in_commit: false,
                ..
            }
        ),
        "{error:?}"
    );
    assert!(conn.is_broken());
    conn.close().await;
    let sockets = |port: u16| {
        let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
        let remote = format!(":{port:04X} ");
        let established = |line: &&str| {
            line.contains(&remote)
                && line
                    .split_whitespace()
                    .nth(2)
                    .is_some_and(|it| it.ends_with(&remote[..5]))
                && line.split_whitespace().nth(3) == Some("01")
        };
        table.lines().filter(established).count()
    };
    let until = std::time::Instant::now() + Duration::from_secs(10);
    while sockets(wire.at.port()) > 0 {
        assert!(
            std::time::Instant::now() < until,
            "the socket is still open"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn the_identity_of_an_address_has_no_secret() {
    let location = Location::parse(&url()).unwrap();
    let [login, host, database] = parts();
    assert_eq!(location.identity(), format!("mysql:{host}/{database}"));
    let password = login.split_once(':').unwrap().1;
    assert!(!location.identity().contains(password));
}
