//! Certificates, made by `openssl`.

use std::path::Path;
use std::process::Command;

/// An authority, and its certificate for `localhost` alone; in this directory.
pub fn certify(directory: &Path, authority: &str) {
    let script = format!(
        "set -e
key='-newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc'
openssl req -x509 $key -days 2 -subj /CN={authority} -keyout {authority}.key -out {authority}.crt \\
  -addext basicConstraints=critical,CA:TRUE
openssl req $key -subj /CN=localhost -keyout server.key -out server.csr
echo subjectAltName=DNS:localhost > names
openssl x509 -req -in server.csr -CA {authority}.crt -CAkey {authority}.key -days 2 -extfile names -out server.crt"
    );
    let mut command = Command::new("sh");
    command.args(["-c", &script]).current_dir(directory);
    let done = command.output().expect("sh");
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}");
}
