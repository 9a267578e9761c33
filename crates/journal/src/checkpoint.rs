//! Checkpoints: all of the memory, so that what is older in the journal can be removed.
//!
//! The memory changes while it is written down. So a checkpoint is of no moment; but with all that was appended since it was
//! begun it is: entries say what is there afterwards, whatever was there before.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::disk::{Disk, DiskFile};
use crate::journal::{Memory, Shared};
use crate::recover::remove_older;
use crate::sector::{Part, SECTOR, WORDS};
use crate::segment::{Head, Kind, begin};
use crate::{JournalError, entries};

/// Words that are looked at together: where all are zero, nothing is written.
const BLOCK: usize = 512;

/// Words that are written at once.
const PIECE: usize = WORDS * 4096;

/// Between two pieces it rests, so many times as long as the disk was busy.
const REST: u32 = 3;

/// The sector that says what is in it, and the first one after that.
pub(crate) const SUMMARY: u64 = 1;
pub(crate) const FIRST: u64 = 2;

pub(crate) struct Checkpointer {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) memory: Arc<dyn Memory>,
    pub(crate) store: u64,
    /// After so many bytes of journal.
    pub(crate) after: u64,
    /// There are many files already.
    pub(crate) due: bool,
    pub(crate) clock: Clock,
}

/// What time it is.
pub(crate) type Clock = Arc<dyn Fn() -> u64 + Send + Sync>;

impl Checkpointer {
    /// Makes checkpoints until the journal ends.
    pub(crate) fn run(self, shared: &Shared) {
        let (mut last, mut due) = (0u64, self.due);
        loop {
            let mut state = shared.state();
            let is_due = |written: u64| due || written >= last.saturating_add(self.after);
            while !state.stop && state.error.is_none() && !is_due(state.written) {
                state = shared.wait(state);
            }
            if state.stop || state.error.is_some() {
                return;
            }
            (last, due) = (state.written, false);
            drop(state);
            match self.make(shared) {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => {
                    return shared.fail(JournalError::disk("writing a checkpoint", &error));
                }
            }
        }
    }

    /// Makes one; `false` if the journal has ended meanwhile.
    fn make(&self, shared: &Shared) -> io::Result<bool> {
        let Some((number, position)) = shared.rotate() else { return Ok(false) };
        let words = self.memory.words();
        let memory = words.len() as u64;
        let head = Head { store: self.store, kind: Kind::Checkpoint, number, position, memory };
        let (unfinished, file) = begin(&*self.disk, &head, SECTOR as u64 * FIRST)?;
        let mut image = Image { head, file, next: FIRST, gathered: Vec::new(), words: 0 };
        let mut copy = vec![0; BLOCK];
        for (at, block) in (0..).step_by(BLOCK).zip(words.chunks(BLOCK)) {
            let copy = &mut copy[..block.len()];
            copy.iter_mut().zip(block).for_each(|(to, from)| *to = from.load(Ordering::Relaxed));
            if copy.iter().all(|word| *word == 0) {
                continue;
            }
            entries::push(&mut image.gathered, at, copy);
            if image.gathered.len() >= PIECE && !image.write_piece(shared)? {
                self.disk.remove(&unfinished)?;
                return Ok(false);
            }
        }
        let rest = std::mem::take(&mut image.gathered);
        image.write(&rest)?;
        // What was read above was in the memory, and perhaps not in the journal yet.
        let Some(settled) = shared.settle() else {
            self.disk.remove(&unfinished)?;
            return Ok(false);
        };
        image.finish(settled, (self.clock)())?;
        self.disk.rename(&unfinished, &head.name())?;
        self.disk.sync()?;
        remove_older(&*self.disk, number)?;
        Ok(true)
    }
}

/// A checkpoint that is being written.
struct Image {
    head: Head,
    file: Box<dyn DiskFile>,
    next: u64,
    gathered: Vec<u64>,
    /// How many words it has.
    words: u64,
}

impl Image {
    /// Writes whole sectors of what was gathered, and rests; `false` if the journal has ended.
    fn write_piece(&mut self, shared: &Shared) -> io::Result<bool> {
        let start = Instant::now();
        let whole = self.gathered.len() / WORDS * WORDS;
        let rest = self.gathered.split_off(whole);
        let piece = std::mem::replace(&mut self.gathered, rest);
        self.write(&piece)?;
        self.file.sync()?;
        let end = Instant::now() + REST * start.elapsed();
        let mut state = shared.state();
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if state.stop || state.error.is_some() {
                return Ok(false);
            }
            if left == Duration::ZERO {
                return Ok(true);
            }
            let waited = shared.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
        }
    }

    fn write(&mut self, words: &[u64]) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(words.len().div_ceil(WORDS) * SECTOR);
        self.head.owner().frame(self.next, Part::Rest, words, &mut bytes);
        self.file.write_at(self.next * SECTOR as u64, &bytes)?;
        self.next += (bytes.len() / SECTOR) as u64;
        self.words += words.len() as u64;
        Ok(())
    }

    /// Says how much there is, up to where the journal must be read, and what time it is.
    fn finish(self, settled: u64, time: u64) -> io::Result<()> {
        let mut bytes = Vec::new();
        let summary = [self.words, settled, time];
        self.head.owner().frame(SUMMARY, Part::Batch, &summary, &mut bytes);
        self.file.write_at(SUMMARY * SECTOR as u64, &bytes)?;
        self.file.sync()
    }
}
