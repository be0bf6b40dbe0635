//! Duties: work that must be done once, although many could do it.
//!
//! Owns: the holder of a duty, and the end of its lease, by the database's clock. Never: guards the work of a
//! duty: a holder that stalls may believe that it has the duty for longer than it does, so each write of a
//! duty has a guard of its own.

use std::time::Duration;

use uuid::Uuid;

use super::conn::Conn;
use super::error::Error;
use super::micros;
use super::statement::statements;

/// The longest lease: no duty is held for longer without being taken again.
const LONGEST: Duration = Duration::from_secs(300);

statements! {
    /// A lease that ends later than any that begins now was taken before the clock was set back.
    TAKE_DUTY = "
        INSERT INTO ductwork_duties (name, holder, until) VALUES (:name, :holder, {now} + :lease)
        ON CONFLICT (name) DO UPDATE SET holder = :holder, until = {now} + :lease
         WHERE ductwork_duties.holder = :holder OR ductwork_duties.until <= {now} OR ductwork_duties.until > {now} + :longest",
        on Mysql [&OFFER_DUTY, &TAKE_OFFERED_DUTY];
    /// A duty that nobody has held yet counts as over.
    OFFER_DUTY in Mysql = "
        INSERT INTO ductwork_duties (name, holder, until) VALUES (:name, :holder, 0) {keep:ductwork_duties;name}";
    TAKE_OFFERED_DUTY in Mysql = "
        UPDATE ductwork_duties SET holder = :holder, until = {now} + :lease
         WHERE name = :name AND (holder = :holder OR until <= {now} OR until > {now} + :longest)";
}

/// Takes a duty, or keeps it, for this long, [`LONGEST`] at most; false while another holder has it.
pub async fn take(
    conn: &mut Conn,
    name: &str,
    holder: Uuid,
    lease: Duration,
) -> Result<bool, Error> {
    let args = [
        ("name", name.into()),
        ("holder", holder.into()),
        ("lease", micros(lease.min(LONGEST)).into()),
        ("longest", micros(LONGEST).into()),
    ];
    Ok(conn.execute(&TAKE_DUTY, &args).await? == 1)
}

/// Gives a duty back, for the next one that asks for it. A duty of another holder is not affected.
pub async fn give_back(conn: &mut Conn, name: &str, holder: Uuid) -> Result<(), Error> {
    take(conn, name, holder, Duration::ZERO).await.map(drop)
}
