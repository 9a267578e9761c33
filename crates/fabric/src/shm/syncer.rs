//! Keeps a segment in a file: one sync of its pages for all who flush meanwhile, and a time that no later boot of the host begins
//! before.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

use super::layout::header;
use crate::clock::boot_id;
use crate::memory::Mapping;
use crate::runtime::Time;
use crate::sync::Ordering;
use crate::{FabricError, Result};

/// What is noted is so far ahead of what anybody has seen of the time, in nanoseconds, and is noted anew when half of that is left.
const AHEAD: u64 = 15_000_000_000;

/// Pages may reach the disk long before, or after, what was noted; nobody has seen a later time than this after that.
const MARGIN: u64 = 3_600_000_000_000;

/// How often it looks at the time, if nobody flushes.
const LOOK: Duration = Duration::from_secs(5);

/// How long others may take to agree on the time, and how often it is looked whether they have.
const AGREEMENT: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(1);

/// A thread that syncs.
#[derive(Debug)]
pub(super) struct Syncer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// How far the time of the segment is ahead of the host's clock.
    pub(super) ahead: u64,
}

#[derive(Debug)]
struct Shared {
    control: Arc<Mapping>,
    data: Arc<Mapping>,
    state: Mutex<State>,
    changed: Condvar,
    /// What was asked for until then is on disk.
    done: AtomicU64,
    /// A sync has failed: what the disk holds is unknown from then on.
    failed: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    asked: u64,
    stop: bool,
    why: Option<String>,
}

impl Syncer {
    pub(super) fn start(
        file: impl AsFd,
        control: &Arc<Mapping>,
        data: &Arc<Mapping>,
    ) -> Result<Self> {
        let ahead = agree(file, control)?;
        let (control, data) = (Arc::clone(control), Arc::clone(data));
        let shared = Arc::new(Shared {
            control,
            data,
            state: Mutex::default(),
            changed: Condvar::new(),
            done: AtomicU64::new(0),
            failed: AtomicBool::new(false),
        });
        let its = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("farside-sync".into());
        let thread = thread.spawn(move || its.run(ahead));
        let thread = thread.map_err(|error| FabricError::setup("starting a thread", error))?;
        Ok(Syncer { shared, thread: Some(thread), ahead })
    }

    /// Asks for all that was written so far to be on disk; a number for [`Syncer::is_done`].
    pub(super) fn ask(&self) -> u64 {
        let mut state = self.shared.state();
        state.asked += 1;
        self.shared.changed.notify_one();
        state.asked
    }

    /// Whether what was asked for is done, or why it never will be.
    pub(super) fn is_done(&self, asked: u64) -> Option<Result<(), String>> {
        if self.shared.failed.load(Ordering::Acquire) {
            return Some(Err(self.shared.state().why.clone().unwrap_or_default()));
        }
        (self.shared.done.load(Ordering::Acquire) >= asked).then_some(Ok(()))
    }
}

impl Drop for Syncer {
    fn drop(&mut self) {
        self.shared.state().stop = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, ahead: u64) {
        let mut state = self.state();
        while !state.stop {
            let (asked, done) = (state.asked, self.done.load(Ordering::Relaxed));
            if asked == done {
                let waited = self.changed.wait_timeout(state, LOOK);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
                if state.asked == done {
                    self.note_time(ahead);
                }
                continue;
            }
            drop(state);
            let synced = match self.note_time(ahead) {
                true => self.control.sync().and_then(|()| self.data.sync()),
                false => self.data.sync(),
            };
            state = self.state();
            match synced {
                Ok(()) => self.done.store(asked, Ordering::Release),
                Err(error) => {
                    // The kernel takes the lost pages for clean: no later sync can be believed either.
                    state.why = Some(error.to_string());
                    self.failed.store(true, Ordering::Release);
                    return;
                }
            }
        }
    }

    /// Notes a time that is later than any that was seen; whether that had to be.
    fn note_time(&self, ahead: u64) -> bool {
        let now = Time::of_host().0 + ahead;
        let noted = &self.control.words()[header::LATEST];
        let is_due = noted.load(Ordering::Relaxed) < now + AHEAD / 2;
        if is_due {
            noted.fetch_max(now + AHEAD, Ordering::Relaxed);
        }
        is_due
    }
}

/// How far the time is ahead of the host's clock, which begins again with every boot. All processes of one boot agree on it: the
/// first one finds it out.
fn agree(file: impl AsFd, control: &Mapping) -> Result<u64> {
    let failed = |error: std::io::Error| FabricError::setup("agreeing on the time", error);
    let begun = Instant::now();
    while let Err(error) = flock(&file, FlockOperation::NonBlockingLockExclusive) {
        if error != rustix::io::Errno::WOULDBLOCK {
            return Err(failed(error.into()));
        }
        if begun.elapsed() > AGREEMENT {
            let why = "another process has locked the file for too long; end it (lslocks shows it)";
            return Err(FabricError::setup("agreeing on the time", why));
        }
        std::thread::park_timeout(PAUSE);
    }
    let boot = boot_id().map_err(failed)?;
    let word = |at: usize| &control.words()[at];
    if word(header::BOOT).load(Ordering::Acquire) != boot {
        let (now, latest) = (Time::of_host().0, word(header::LATEST).load(Ordering::Acquire));
        let ahead = match latest {
            0 => 0,
            _ => (latest + MARGIN).saturating_sub(now),
        };
        word(header::AHEAD).store(ahead, Ordering::Relaxed);
        word(header::LATEST).fetch_max(now + ahead + AHEAD, Ordering::Relaxed);
        word(header::BOOT).store(boot, Ordering::Release);
        control.sync().map_err(failed)?;
    }
    let ahead = word(header::AHEAD).load(Ordering::Acquire);
    flock(&file, FlockOperation::Unlock).map_err(|error| failed(error.into()))?;
    Ok(ahead)
}
