//! Duties: work that is to be done once, though there are many who could.
//!
//! Owns: who has a duty, and until when, by the database's clock. Never: guards what is done by it: a holder
//! that stalls may believe that it has the duty for longer than it does, so each write of a duty is guarded by
//! itself.

use std::time::Duration;

use uuid::Uuid;

use super::conn::Conn;
use super::error::Error;
use super::micros;
use super::statement::statements;

statements! {
    TAKE_DUTY = "
        INSERT INTO ductwork_duties (name, holder, until) VALUES (:name, :holder, {now} + :lease)
        ON CONFLICT (name) DO UPDATE SET holder = :holder, until = {now} + :lease
         WHERE ductwork_duties.holder = :holder OR ductwork_duties.until <= {now}",
        on Mysql [&OFFER_DUTY, &TAKE_OFFERED_DUTY];
    /// One that nobody has had is over.
    OFFER_DUTY in Mysql = "
        INSERT INTO ductwork_duties (name, holder, until) VALUES (:name, :holder, 0) {keep:ductwork_duties;name}";
    TAKE_OFFERED_DUTY in Mysql = "
        UPDATE ductwork_duties SET holder = :holder, until = {now} + :lease
         WHERE name = :name AND (holder = :holder OR until <= {now})";
}

/// Takes a duty, or keeps it, for so long; false while another has it.
pub async fn take(
    conn: &mut Conn,
    name: &str,
    holder: Uuid,
    lease: Duration,
) -> Result<bool, Error> {
    let args = [
        ("name", name.into()),
        ("holder", holder.into()),
        ("lease", micros(lease).into()),
    ];
    Ok(conn.execute(&TAKE_DUTY, &args).await? == 1)
}

/// Gives a duty back: it is whoever's that asks next. That of another holder stays theirs.
pub async fn give_back(conn: &mut Conn, name: &str, holder: Uuid) -> Result<(), Error> {
    take(conn, name, holder, Duration::ZERO).await.map(drop)
}
