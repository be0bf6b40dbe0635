//! The console does not open itself to others.

use crate::fixture::*;
use crate::http::Console;
use crate::support::Db;

const PIPELINE: &str = "pipeline: P\nsteps: { A: { command: [cat] } }\nflow: [{ start: A }]\n";

#[tokio::test]
async fn a_console_that_answers_anybody_of_other_hosts_is_refused_by_check_and_at_a_start() {
    let db = Db::sqlite();
    let fixture = DaemonFixture::new(&db, Settings::default(), &[PIPELINE]).await;
    fixture.configure("  console: { listen: \"0.0.0.0:9410\", visitors: anybody }\n");
    for verb in ["check", "start", "console"] {
        let refused = fixture.run(&[], &[verb]);
        assert_eq!(refused.status.code(), Some(2), "{verb}");
        let said = String::from_utf8(refused.stderr).unwrap();
        assert!(
            said.contains("other hosts can reach 0.0.0.0:9410"),
            "{said}"
        );
        assert!(said.contains("ductworkd token create"), "{said}");
    }
    fixture.configure("  console: { listen: \"127.0.0.1:9410\" }\n");
    let fine = fixture.run(&[], &["check"]);
    assert_eq!(fine.status.code(), Some(0), "{fine:?}");
}

#[tokio::test]
async fn a_request_for_a_name_that_is_not_the_consoles_is_refused() {
    let db = Db::sqlite();
    let fixture = DaemonFixture::new(&db, Settings::default(), &[PIPELINE]).await;
    fixture.configure("  console: { listen: \"127.0.0.1:0\", hosts: [ductwork.example] }\n");
    let mut daemon = fixture.start();
    daemon.ready().await;
    let console = Console::of(&daemon).await;
    let asked = |host: &str| {
        let lines = format!("GET /livez HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        console.exchange(&lines).unwrap()
    };
    for host in ["localhost", "ductwork.example"] {
        assert_eq!(asked(host).status, 200, "{host}");
    }
    let answer = asked("rebound.example");
    assert_eq!(answer.status, 421);
    assert!(
        answer
            .body
            .contains("add it to `console.hosts`: rebound.example"),
        "{answer:?}"
    );
    assert!(
        answer
            .head
            .contains("content-security-policy: default-src 'none'"),
        "{answer:?}"
    );
    daemon.stop().await;
}
