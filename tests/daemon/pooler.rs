//! A pooler between the daemon and its server: refused at once, with the reason.

use std::io::ErrorKind;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};

use ductwork::store::{Location, Purpose, migrate};

use crate::cluster::Cluster;
use crate::fixture::*;

const ECHO: &str = "
pipeline: Echo
steps: { Echo: { command: [cat] } }
flow: [{ start: Echo }]
";

/// PgBouncer, in front of one server.
struct Pooler {
    child: Child,
    _dir: tempfile::TempDir,
    url: String,
}

impl Pooler {
    /// `more` contains additional lines of its configuration.
    async fn before(cluster: &Cluster, more: &str) -> Self {
        let program = program("pgbouncer");
        let free = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = free.local_addr().expect("a port").port();
        drop(free);
        let dir = tempfile::tempdir().expect("a temporary directory");
        // PgBouncer does not run as root, and its other user has to read this directory.
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(dir.path(), open).expect("a directory");
        let server = cluster.url.rsplit_once('@').expect("a user").1;
        let (host, name) = server.split_once('/').expect("a name");
        let (host, server_port) = host.split_once(':').expect("a port");
        let text = format!(
            "[databases]\n{name} = host={host} port={server_port}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {port}\nunix_socket_dir =\nauth_type = any\n{more}\n"
        )
        .replace("auth_type = any", "auth_type = trust\nauth_file = users");
        std::fs::write(dir.path().join("pooler.ini"), text).expect("its configuration");
        std::fs::write(dir.path().join("users"), "\"postgres\" \"\"\n").expect("its users");
        let mut command = Command::new(program);
        if nix::unistd::geteuid().is_root() {
            command.args(["-u", "nobody"]);
        }
        command.arg("pooler.ini").current_dir(dir.path());
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = command.spawn().expect("PgBouncer starts");
        let pooler = Self {
            child,
            _dir: dir,
            url: cluster
                .url
                .replace(server, &format!("127.0.0.1:{port}/{name}")),
        };
        eventually(
            PATIENCE,
            "PgBouncer listens",
            async || match TcpStream::connect(("127.0.0.1", port)) {
                Ok(_) => Some(()),
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => None,
                Err(error) => panic!("{error}"),
            },
        )
        .await;
        pooler
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        // It holds nothing that outlives it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// In every mode, and whether it refuses or drops unknown parameters: nothing works only half.
#[tokio::test]
async fn a_pooler_is_refused_at_the_start_with_one_line_that_says_what_to_do() {
    const DROPS: &str = "ignore_startup_parameters = extra_float_digits,options";
    let cluster = Cluster::start();
    let location = Location::parse(&cluster.url).expect("the server's URL");
    let mut conn = location.connect(Purpose::Engine).await.unwrap();
    migrate::migrate(&mut conn).await.unwrap();
    for configured in [
        "pool_mode = transaction".to_owned(),
        format!("pool_mode = transaction\n{DROPS}"),
        format!("pool_mode = session\n{DROPS}"),
    ] {
        let pooler = Pooler::before(&cluster, &configured).await;
        let conn = location.connect(Purpose::Engine).await.unwrap();
        let fixture = DaemonFixture::at(&pooler.url, conn, Settings::default(), &[ECHO]).await;
        let verbs: [&[&str]; 3] = [&["start"], &["trigger", "Echo", "1"], &["audit"]];
        for verb in verbs {
            let refused = fixture.run(&["timeout", "30"], verb);
            let said = String::from_utf8_lossy(&refused.stderr);
            assert_eq!(
                refused.status.code(),
                Some(2),
                "{configured}, {verb:?}: {said}"
            );
            let told = said.lines().filter(|line| {
                line.contains("a connection pooler stands before the PostgreSQL server")
                    && line.contains("let `database.url` lead to the server itself")
            });
            assert_eq!(told.count(), 1, "{configured}, {verb:?}: {said}");
        }
    }
    // The pooler was the cause: without it the same configuration works.
    let mut fixture = DaemonFixture::at(&cluster.url, conn, Settings::default(), &[ECHO]).await;
    let mut daemon = fixture.start();
    fixture.trigger("Echo", "1", 1).await;
    fixture.completed(PATIENCE).await;
    daemon.stop().await;
    fixture.audited().await;
}
