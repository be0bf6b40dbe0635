//! Whether the database takes writes at all, as far as can be told without one.
//!
//! Owns: the question. Never: writes.

use std::path::Path;

use nix::sys::statvfs::{FsFlags, statvfs};

use super::conn::{Conn, Location};
use super::error::Error;
use super::statement::Statement;

/// PostgreSQL only.
static ONLY_READS: Statement = Statement::new(
    "ONLY_READS",
    "SELECT CASE WHEN pg_is_in_recovery() THEN 'the database is a standby, which takes no writes'
                 WHEN current_setting('transaction_read_only') = 'on'
                 THEN 'default_transaction_read_only is on for this role or database, which takes no writes'
             END AS why",
);

/// Why nobody can write, if nobody can.
pub async fn refused(conn: &mut Conn, location: &Location) -> Result<Option<String>, Error> {
    if let Some(file) = location.file() {
        return Ok(no_room(file));
    }
    let row = conn.fetch_optional(&ONLY_READS, &[]).await?;
    let why = row
        .map(|row| row.get::<Option<String>>("why"))
        .transpose()?;
    Ok(why.flatten())
}

/// Of the disk that a file of SQLite's is on.
fn no_room(file: &Path) -> Option<String> {
    let disk = statvfs(file).ok()?;
    let read_only = disk.flags().contains(FsFlags::ST_RDONLY);
    // A part may be kept for root.
    let free = match nix::unistd::geteuid().is_root() {
        true => disk.blocks_free(),
        false => disk.blocks_available(),
    };
    // Some file systems do not count.
    let full = disk.blocks() > 0 && free == 0;
    let what = match (read_only, full) {
        (true, _) => "mounted read-only",
        (false, true) => "full",
        _ => return None,
    };
    let file = file.display();
    Some(format!(
        "the disk that {file} is on is {what}, so that nobody can write"
    ))
}
