//! A database that goes away while a person waits for a run.
//!
//! Owns: reconnecting, and reporting the outage once. A daemon rides an outage out, so the command of a
//! person who watches its work does so too. Never: hides an error that is not an outage, or sends any
//! request twice.

use std::time::{Duration, Instant};

use crate::store::{Conn, Location, Purpose};

use super::exit::{Code, Failure};

/// Longer than a restart or a failover takes; after that, the person decides.
const LONGEST: Duration = Duration::from_secs(300);

/// The pause between two attempts.
const AGAIN: Duration = Duration::from_secs(1);

/// This many failures in a row, each at once on a new connection, are no outage.
const IN_A_ROW: u32 = 5;

/// The outages of one wait.
pub struct Outages {
    location: Location,
    longest: Duration,
    /// The time of the last reconnection; `in_a_row` failures have followed it at once.
    back: Option<Instant>,
    in_a_row: u32,
}

impl Outages {
    /// No outages so far.
    pub fn new(location: Location) -> Self {
        Self {
            location,
            longest: LONGEST,
            back: None,
            in_a_row: 0,
        }
    }

    /// Reconnects after this failure; returns the failure if it is not an outage, or if the outage lasts
    /// too long. `tell` gets lines for a person if reconnecting takes longer than a moment.
    pub async fn ride_out(
        &mut self,
        conn: &mut Conn,
        failure: Failure,
        tell: &mut dyn FnMut(String),
    ) -> Result<(), Failure> {
        let mut failure = of_outage(failure)?;
        let quick = self.back.is_some_and(|back| back.elapsed() < AGAIN);
        self.in_a_row = if quick { self.in_a_row + 1 } else { 0 };
        if self.in_a_row >= IN_A_ROW {
            return Err(failure);
        }
        let began = Instant::now();
        let mut told = false;
        let minutes = self.longest.as_secs() / 60;
        let away = format!("note: the database is away; waiting for it, {minutes} minutes at most");
        loop {
            let mut connecting = std::pin::pin!(self.location.connect(Purpose::Query));
            let soon = tokio::time::timeout(AGAIN, &mut connecting).await;
            if !matches!(soon, Ok(Ok(_))) && !std::mem::replace(&mut told, true) {
                tell(away.clone());
            }
            let opened = match soon {
                Ok(opened) => opened,
                Err(_) => connecting.await,
            };
            match opened {
                Ok(open) => {
                    if told {
                        tell("note: the database is back".to_owned());
                    }
                    (*conn, self.back) = (open, Some(Instant::now()));
                    return Ok(());
                }
                Err(error) => failure = of_outage(error.into())?,
            }
            if began.elapsed() >= self.longest {
                return Err(failure);
            }
            tokio::time::sleep(AGAIN).await;
        }
    }
}

/// The failure itself, if an outage may be its cause.
fn of_outage(failure: Failure) -> Result<Failure, Failure> {
    match failure {
        Failure::Problems(Code::Unavailable, _) => Ok(failure),
        other => Err(other),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::problem::{Problem, Problems};

    fn gone() -> Failure {
        Failure::Problems(Code::Unavailable, Problems(vec![Problem::new("gone")]))
    }

    #[tokio::test]
    async fn an_outage_is_told_once_and_ends_with_a_connection_or_with_its_own_failure() {
        let dir = tempfile::tempdir().expect("a directory");
        let here = Location::sqlite(dir.path().join("here.db"));
        let mut conn = here.connect(Purpose::Query).await.expect("a file");
        let mut told = Vec::new();
        let mut tell = |line: String| told.push(line);

        // A failure that is not an outage is returned at once.
        let mut outages = Outages::new(here);
        let other = Failure::failed(Problem::new("no"));
        let failed = outages.ride_out(&mut conn, other, &mut tell).await;
        assert!(matches!(failed, Err(Failure::Problems(Code::Failed, _))));

        // A database that accepts every connection and then fails is not away.
        for _ in 0..IN_A_ROW {
            let ridden = outages.ride_out(&mut conn, gone(), &mut tell).await;
            assert!(ridden.is_ok());
        }
        let failed = outages.ride_out(&mut conn, gone(), &mut tell).await;
        assert!(matches!(
            failed,
            Err(Failure::Problems(Code::Unavailable, _))
        ));

        // Nobody listens at this port.
        let port = TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr());
        let url = format!("postgres://{}/x", port.expect("a port"));
        let mut outages = Outages::new(Location::parse(&url).expect("a URL"));
        outages.longest = AGAIN;
        let failed = outages.ride_out(&mut conn, gone(), &mut tell).await;
        assert!(matches!(
            failed,
            Err(Failure::Problems(Code::Unavailable, _))
        ));
        assert_eq!(told.len(), 1, "{told:?}");
    }
}
