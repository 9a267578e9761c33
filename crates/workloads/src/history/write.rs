//! Writing histories beside a run: attempts are put together as words by whoever makes them, and turned into
//! text by a thread of its own.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::rc::Rc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use super::Outcome;
use super::text::put_words;

/// Words that are handed to the writing thread at once, and how many such pieces may wait.
const PIECE: usize = 8 << 10;
const WAITING: usize = 256;

/// Pieces that were written, to be filled again.
type Empty = Arc<Mutex<Vec<Vec<u64>>>>;

/// Where a history goes.
#[derive(Debug)]
pub struct Sink {
    pieces: SyncSender<Vec<u64>>,
    empty: Empty,
    thread: JoinHandle<io::Result<()>>,
}

impl Sink {
    /// Into a file.
    pub fn to_file(path: &Path) -> io::Result<Self> {
        Ok(Self::to(File::create(path)?))
    }

    /// To wherever that leads.
    pub fn to(mut output: impl Write + Send + 'static) -> Self {
        let (pieces, arriving) = sync_channel::<Vec<u64>>(WAITING);
        let empty = Empty::default();
        let given_back = Arc::clone(&empty);
        let thread = std::thread::spawn(move || {
            let mut text = Vec::new();
            for mut piece in arriving {
                text.clear();
                put_words(&mut text, &piece);
                output.write_all(&text)?;
                piece.clear();
                given_back.lock().unwrap_or_else(PoisonError::into_inner).push(piece);
            }
            output.flush()
        });
        Sink { pieces, empty, thread }
    }

    /// A recorder for one thread or task.
    pub fn recorder(&self) -> Recorder {
        let pieces = Some((self.pieces.clone(), Arc::clone(&self.empty)));
        let page = Page { pieces, words: Vec::new(), whole: 0, read_ts: None };
        Recorder(Rc::new(RefCell::new(page)))
    }

    /// Waits until all is written. All recorders must be gone.
    pub fn finish(self) -> io::Result<()> {
        drop(self.pieces);
        let written = self.thread.join();
        written.unwrap_or_else(|_| Err(io::Error::other("the thread that writes panicked")))
    }
}

/// What the first word of a step or an end says, in its lowest byte.
pub(super) mod tag {
    pub(crate) const LIST: u64 = 1;
    pub(crate) const APPEND: u64 = 2;
    pub(crate) const READ: u64 = 3;
    pub(crate) const WRITE: u64 = 4;
    pub(crate) const END: u64 = 5;
}

/// Puts attempts together. Clones put together the same one: for those who have to end it for others.
#[derive(Clone, Debug)]
pub struct Recorder(Rc<RefCell<Page>>);

#[derive(Debug, Default)]
struct Page {
    /// `None`: nobody wants to know.
    pieces: Option<(SyncSender<Vec<u64>>, Empty)>,
    words: Vec<u64>,
    /// How many words are of attempts that have ended.
    whole: usize,
    /// The time of what the attempt at hand has read.
    read_ts: Option<u64>,
}

/// The version of a row that is not there, where the store does not know since when.
pub const UNTOLD: u64 = u64::MAX;

/// A row of a table, as a history calls it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Name {
    /// The table.
    pub table: u16,
    /// The key.
    pub key: u64,
}

impl Recorder {
    /// One that records nothing.
    pub fn deaf() -> Self {
        Recorder(Rc::default())
    }

    /// Whether anything is recorded.
    pub fn listens(&self) -> bool {
        self.0.borrow().pieces.is_some()
    }

    /// A list was read.
    pub fn read_list(&mut self, key: u64, list: &[u64]) {
        let mut page = self.0.borrow_mut();
        page.put(&[tag::LIST | (list.len() as u64) << 8, key]);
        page.put(list);
    }

    /// An element was appended.
    pub fn append(&mut self, key: u64, element: u64) {
        self.0.borrow_mut().put(&[tag::APPEND, key, element]);
    }

    /// A register was read: its value, and the version that the store says it is.
    pub fn read(&mut self, name: Name, value: Option<u64>, version: u64) {
        let first = tag::READ | u64::from(value.is_some()) << 8 | u64::from(name.table) << 16;
        self.0.borrow_mut().put(&[first, name.key, value.unwrap_or(0), version]);
    }

    /// What the attempt reads is as of a time, the store says.
    pub fn reads_at(&mut self, time: u64) {
        self.0.borrow_mut().read_ts = Some(time);
    }

    /// A register was written, or with `None` deleted.
    pub fn write(&mut self, name: Name, value: Option<u64>) {
        let first = tag::WRITE | u64::from(value.is_some()) << 8 | u64::from(name.table) << 16;
        self.0.borrow_mut().put(&[first, name.key, value.unwrap_or(0)]);
    }

    /// The attempt has ended.
    pub fn end(&mut self, attempt: &Ended) {
        self.0.borrow_mut().end(attempt);
    }

    /// Hands over all that has ended. Nothing is recorded any more, whoever tries.
    pub fn close(&mut self) {
        *self.0.borrow_mut() = Page::default();
    }
}

impl Page {
    #[inline]
    fn put(&mut self, words: &[u64]) {
        if self.pieces.is_some() {
            self.words.extend_from_slice(words);
        }
    }

    fn end(&mut self, attempt: &Ended) {
        let Some((pieces, empty)) = &self.pieces else { return };
        let outcome = match attempt.outcome {
            Outcome::Committed => 0,
            Outcome::Aborted => 1,
            Outcome::Unknown => 2,
        };
        let Ended { id, proc, begin, end, commit_ts, .. } = *attempt;
        let read_ts = self.read_ts.take();
        let times = u64::from(commit_ts.is_some()) | u64::from(read_ts.is_some()) << 1;
        let first = tag::END | outcome << 8 | times << 16;
        let (commit_ts, read_ts) = (commit_ts.unwrap_or(0), read_ts.unwrap_or(0));
        self.words.extend_from_slice(&[first, id, proc, begin, end, commit_ts, read_ts]);
        self.whole = self.words.len();
        if self.whole >= PIECE {
            let next = empty.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let next = next.unwrap_or_else(|| Vec::with_capacity(PIECE + (PIECE >> 3)));
            self.whole = 0;
            // Whoever finishes the sink reads the error.
            let _ = pieces.send(std::mem::replace(&mut self.words, next));
        }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        if let Some((pieces, _)) = &self.pieces {
            self.words.truncate(self.whole);
            let _ = pieces.send(std::mem::take(&mut self.words));
        }
    }
}

/// What is known of an attempt at its end.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// Its number.
    pub id: u64,
    /// Who made it.
    pub proc: u64,
    /// When it began, in nanoseconds.
    pub begin: u64,
    /// When it ended.
    pub end: u64,
    /// How.
    pub outcome: Outcome,
    /// The time that the store has given it.
    pub commit_ts: Option<u64>,
}
