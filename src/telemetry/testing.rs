//! The log of a test.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use tracing::subscriber::DefaultGuard;

/// The lines that this thread logs for as long as this lives.
pub struct Logged {
    text: Arc<Mutex<Vec<u8>>>,
    _logging: DefaultGuard,
}

impl Logged {
    /// Begins without a line.
    pub fn begin() -> Self {
        let text = Arc::<Mutex<Vec<u8>>>::default();
        let writer = Arc::clone(&text);
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_writer(move || Writer(Arc::clone(&writer)));
        Self {
            text,
            _logging: tracing::subscriber::set_default(subscriber.finish()),
        }
    }

    /// The number of lines with this text.
    pub fn count(&self, text: &str) -> usize {
        let all = String::from_utf8(self.text.lock().unwrap().clone()).unwrap();
        all.lines().filter(|line| line.contains(text)).count()
    }
}

struct Writer(Arc<Mutex<Vec<u8>>>);

impl Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
