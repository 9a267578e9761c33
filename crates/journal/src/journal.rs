//! The journal as whoever owns the memory sees it, and the thread that writes it.
//!
//! While the disk is busy with one batch, the next one gathers: however many ask for a sync meanwhile, they share the next one
//! (group commit).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use crate::checkpoint::{Checkpointer, Clock};
use crate::writer::Writer;
use crate::{JournalError, entries};

/// Memory that is to survive.
pub trait Memory: Send + Sync {
    /// All of its words.
    fn words(&self) -> &[AtomicU64];
}

impl Memory for Vec<AtomicU64> {
    fn words(&self) -> &[AtomicU64] {
        self
    }
}

/// Sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// How long a journal file is.
    pub segment_bytes: u64,
    /// After so many bytes of journal a checkpoint is made, and what is older is removed.
    pub checkpoint_bytes: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options { segment_bytes: 64 << 20, checkpoint_bytes: 256 << 20 }
    }
}

/// Words that gather before they are handed to the disk, also if nobody asks for that.
const GATHERED: usize = 8 << 10;

/// Words that may wait for the disk. Whoever appends more waits.
const MOST_WAITING: usize = 4 << 20;

/// What the threads share.
pub(crate) struct Shared {
    state: Mutex<State>,
    /// There is something to do for the writer, or for whoever waits for it.
    pub(crate) changed: Condvar,
    durable: AtomicU64,
    failed: AtomicBool,
    /// A checkpoint needs to know what was appended by now.
    asked: AtomicBool,
}

#[derive(Default)]
pub(crate) struct State {
    /// Words that wait for the disk, and how many were appended with them.
    waiting: Vec<u64>,
    position: u64,
    /// Up to where somebody wants it to be durable.
    wanted: u64,
    /// A new file is to be begun; the one that was, and its position.
    rotate: bool,
    pub(crate) rotated: Option<(u64, u64)>,
    /// What was appended when a checkpoint asked for it.
    pub(crate) answered: Option<u64>,
    /// Bytes that were written, all in all.
    pub(crate) written: u64,
    pub(crate) stop: bool,
    pub(crate) error: Option<JournalError>,
}

impl Shared {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing is written any more.
    pub(crate) fn fail(&self, error: JournalError) {
        self.state().error.get_or_insert(error);
        self.failed.store(true, Ordering::Release);
        self.changed.notify_all();
    }

    /// Asks the writer for a new file; where it begins, or `None` if this is the end.
    pub(crate) fn rotate(&self) -> Option<(u64, u64)> {
        let mut state = self.state();
        state.rotate = true;
        self.changed.notify_all();
        loop {
            if let Some(rotated) = state.rotated.take() {
                return Some(rotated);
            }
            if state.stop || state.error.is_some() {
                return None;
            }
            state = self.wait(state);
        }
    }

    /// All that has happened to the memory until now is durable when this returns; up to where that is, or `None` if this is
    /// the end.
    pub(crate) fn settle(&self) -> Option<u64> {
        self.asked.store(true, Ordering::SeqCst);
        let mut state = self.state();
        let mut answered = None;
        loop {
            answered = answered.or(state.answered.take());
            if let Some(position) = answered {
                if self.durable.load(Ordering::Acquire) >= position {
                    return Some(position);
                }
                if state.wanted < position {
                    state.wanted = position;
                    self.changed.notify_all();
                }
            }
            if state.stop || state.error.is_some() {
                return None;
            }
            state = self.wait(state);
        }
    }
}

/// The journal of some memory. One thread has it, which is the one that changes the memory.
pub struct Journal {
    shared: Arc<Shared>,
    /// What was appended, and not handed on yet.
    gathered: Vec<u64>,
    position: u64,
    threads: Vec<JoinHandle<()>>,
}

impl std::fmt::Debug for Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (position, durable) = (self.position, self.durable());
        f.debug_struct("Journal").field("position", &position).field("durable", &durable).finish()
    }
}

impl Journal {
    pub(crate) fn start(
        writer: Writer,
        checkpointer: Checkpointer,
        clock: Clock,
        tell: impl Fn() + Send + 'static,
    ) -> Result<Self, JournalError> {
        let position = writer.position;
        let shared = Arc::new(Shared {
            state: Mutex::new(State { position, wanted: position, ..State::default() }),
            changed: Condvar::new(),
            durable: AtomicU64::new(position),
            failed: AtomicBool::new(false),
            asked: AtomicBool::new(false),
        });
        let spawn = |name: &str, work: Box<dyn FnOnce() + Send>| {
            let thread = std::thread::Builder::new().name(name.into()).spawn(work);
            thread.map_err(|error| JournalError::disk("starting a thread", &error))
        };
        let (for_writer, for_checkpoints) = (Arc::clone(&shared), Arc::clone(&shared));
        let writing =
            spawn("journal", Box::new(move || write(writer, &for_writer, &*clock, &tell)))?;
        let making = spawn("checkpoint", Box::new(move || checkpointer.run(&for_checkpoints)))?;
        let (gathered, threads) = (Vec::new(), vec![writing, making]);
        Ok(Journal { shared, gathered, position, threads })
    }

    /// These words are at this place of the memory from now on. They are in the memory already.
    #[inline]
    pub fn append(&mut self, at: u64, words: &[u64]) {
        let before = self.gathered.len();
        entries::push(&mut self.gathered, at, words);
        self.position += (self.gathered.len() - before) as u64;
        if self.gathered.len() >= GATHERED {
            self.hand_on(0);
        }
        self.tick();
    }

    /// How many words were appended, with what is said about them: to be compared with [`Journal::durable`].
    #[inline]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Asks for all that was appended to be durable. It is as soon as [`Journal::durable`] is at that position; `tell` is
    /// called then.
    pub fn sync(&mut self) {
        self.hand_on(self.position);
    }

    /// How far it is durable.
    #[inline]
    pub fn durable(&self) -> u64 {
        self.shared.durable.load(Ordering::Acquire)
    }

    /// To be called now and then: a checkpoint may wait for whoever changes the memory.
    #[inline]
    pub fn tick(&mut self) {
        // Whatever the checkpoint has read was appended before this sees that it asks.
        if self.shared.asked.load(Ordering::Acquire) {
            self.hand_on(0);
            self.shared.asked.store(false, Ordering::SeqCst);
            self.shared.state().answered = Some(self.position);
            self.shared.changed.notify_all();
        }
    }

    /// Why nothing is written any more, if that is so. Then nothing becomes durable, either.
    pub fn error(&self) -> Option<JournalError> {
        match self.shared.failed.load(Ordering::Acquire) {
            true => self.shared.state().error.clone(),
            false => None,
        }
    }

    /// Waits until all that was appended is durable.
    pub fn sync_and_wait(&mut self) -> Result<(), JournalError> {
        self.sync();
        let mut state = self.shared.state();
        while self.durable() < self.position {
            if let Some(error) = &state.error {
                return Err(error.clone());
            }
            state = self.shared.wait(state);
        }
        Ok(())
    }

    fn hand_on(&mut self, wanted: u64) {
        let mut state = self.shared.state();
        // Not more than the disk can take.
        while state.waiting.len() > MOST_WAITING && state.error.is_none() {
            state = self.shared.wait(state);
        }
        if state.error.is_some() {
            self.gathered.clear();
            return;
        }
        state.waiting.append(&mut self.gathered);
        state.position = self.position;
        state.wanted = state.wanted.max(wanted);
        drop(state);
        self.shared.changed.notify_all();
    }
}

impl Drop for Journal {
    /// Whatever was appended is durable when it is over, if the disk can do that.
    fn drop(&mut self) {
        let _ = self.sync_and_wait();
        self.shared.state().stop = true;
        self.shared.changed.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// What the writer is to do next.
struct Task {
    batch: Vec<u64>,
    sync: bool,
    rotate: bool,
}

fn next_task(shared: &Shared, spare: &mut Vec<u64>) -> Option<Task> {
    let mut state = shared.state();
    loop {
        let sync = state.wanted > shared.durable.load(Ordering::Relaxed);
        if sync || state.rotate || !state.waiting.is_empty() {
            let batch = std::mem::replace(&mut state.waiting, std::mem::take(spare));
            return Some(Task { batch, sync, rotate: std::mem::take(&mut state.rotate) });
        }
        if state.stop {
            return None;
        }
        state = shared.wait(state);
    }
}

fn write(mut writer: Writer, shared: &Shared, clock: &dyn Fn() -> u64, tell: &dyn Fn()) {
    let mut spare = Vec::new();
    while let Some(mut task) = next_task(shared, &mut spare) {
        let durable = shared.durable.load(Ordering::Relaxed);
        let done = (|| {
            if !task.batch.is_empty() {
                writer.write(&task.batch, durable, clock())?;
            }
            if task.rotate {
                shared.state().rotated = Some(writer.rotate(0)?);
            } else if task.sync {
                writer.sync()?;
            }
            Ok(())
        })();
        if let Err(error) = done {
            // What a failed sync has forgotten nobody knows: it is never tried again.
            shared.fail(JournalError::disk("writing the journal", &error));
            tell();
            return;
        }
        if task.rotate || task.sync {
            shared.durable.store(writer.position, Ordering::Release);
        }
        shared.state().written = writer.written;
        shared.changed.notify_all();
        if task.sync {
            tell();
        }
        task.batch.clear();
        spare = task.batch;
    }
}
