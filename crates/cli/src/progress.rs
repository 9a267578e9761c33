//! A line on the terminal that tells how far something is.

use std::io::{IsTerminal, Write, stderr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Shows the line until it is dropped; nothing where stderr is no terminal.
pub(crate) struct Progress {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// How often the line is written anew.
const EVERY: Duration = Duration::from_millis(200);

impl Progress {
    pub(crate) fn show(line: impl Fn() -> String + Send + 'static) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&over);
        let tell = move || {
            while !seen.load(Ordering::Relaxed) {
                std::thread::park_timeout(EVERY);
                let _ = write!(stderr(), "\r\x1b[K{}", line());
            }
            let _ = write!(stderr(), "\r\x1b[K");
        };
        let thread = stderr().is_terminal().then(|| std::thread::spawn(tell));
        Progress { over, thread }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}
