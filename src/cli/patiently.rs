//! Lines for a person who waits: one on a terminal that shows the progress, and others that stay.
//!
//! Owns: when it is shown, and that it is erased before anything else is printed.

use std::io::{IsTerminal, Write};
use std::pin::Pin;
use std::time::{Duration, Instant};

use crate::time;

/// Before this, nobody wonders.
const SOON: Duration = Duration::from_millis(700);

/// The interval between two updates of the progress.
const EVERY: Duration = Duration::from_millis(250);

/// Does the work, and meanwhile shows its description and its duration so far.
pub async fn patiently<T>(what: impl Fn() -> String, work: impl Future<Output = T>) -> T {
    if !std::io::stderr().is_terminal() {
        return work.await;
    }
    watched(&what, Box::pin(work)).await
}

async fn watched<T>(
    what: &dyn Fn() -> String,
    mut work: Pin<Box<dyn Future<Output = T> + '_>>,
) -> T {
    let began = Instant::now();
    let mut tick = tokio::time::interval_at(tokio::time::Instant::now() + SOON, EVERY);
    let mut shown = false;
    loop {
        tokio::select! {
            biased;
            done = &mut work => {
                if shown {
                    say("\r\x1b[K");
                }
                return done;
            }
            _ = tick.tick() => {
                shown = true;
                say(&format!("\r\x1b[K{} … {}", what(), time::whole(began.elapsed())));
            }
        }
    }
}

/// A line that stays, on a terminal or elsewhere.
pub fn tell(text: &str) {
    let erase = match std::io::stderr().is_terminal() {
        true => "\r\x1b[K",
        false => "",
    };
    say(&format!("{erase}waiting: {}\n", super::out::clean(text)));
}

/// If nobody reads it any more, the work goes on.
fn say(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// The same, for work without a count.
pub async fn waiting<T>(what: &str, work: impl Future<Output = T>) -> T {
    patiently(|| what.to_owned(), work).await
}
