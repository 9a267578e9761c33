//! What is on disk becomes memory again.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::JournalError;
use crate::checkpoint::{Checkpointer, Clock, FIRST, SUMMARY};
use crate::disk::{Disk, DiskFile};
use crate::entries::Reader;
use crate::journal::{Journal, Memory, Options};
use crate::sector::{Found, Owner, Part, SECTOR, WORDS, words};
use crate::segment::{Head, Kind, NOT_OURS, is_unfinished, name, parse};
use crate::writer::{BATCH_HEAD, Writer};

/// What was found on disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// How many bytes of memory came from a checkpoint.
    pub checkpoint_bytes: u64,
    /// How many entries of the journal came on top.
    pub replayed: u64,
    /// Where the journal ended in the middle of something that nobody was promised: which file, and which byte of it.
    pub torn: Option<(String, u64)>,
    /// What time it was when something was written last, by the clock that was given then.
    pub time: u64,
}

/// With so many journal files a checkpoint is made at once.
const MOST_FILES: u64 = 8;

/// How many sectors are read at once.
const AT_ONCE: usize = 8192;

fn failed(name: &str) -> impl Fn(io::Error) -> JournalError {
    move |error| JournalError::disk(&format!("reading {name}"), &error)
}

/// Reads what is there into the memory, which must be zero, and goes on from there. `clock` tells what time it is, and `tell`
/// is called when more has become durable, or nothing does any more.
pub fn open(
    disk: Arc<dyn Disk>,
    memory: Arc<dyn Memory>,
    options: &Options,
    clock: impl Fn() -> u64 + Send + Sync + 'static,
    tell: impl Fn() + Send + 'static,
) -> Result<(Journal, Report), JournalError> {
    let recovered = Recovery { disk: &*disk, memory: &*memory, report: Report::default() }.run()?;
    let Recovered { store, next, position, report, base } = recovered;
    let clock: Clock = Arc::new(clock);
    // Files are as long as they are, however little is in them.
    let due = next - base >= MOST_FILES;
    let wrong = |error: io::Error| JournalError::disk("beginning a journal", &error);
    let memory_words = memory.words().len() as u64;
    let head = Head { store, kind: Kind::Journal, number: next, position, memory: memory_words };
    remove(&*disk, is_unfinished).map_err(wrong)?;
    let writer = Writer::new(&disk, head, options.segment_bytes).map_err(wrong)?;
    remove_older(&*disk, base).map_err(wrong)?;
    let (after, time) = (options.checkpoint_bytes, Arc::clone(&clock));
    let checkpointer = Checkpointer { disk, memory, store, after, due, clock: time };
    Ok((Journal::start(writer, checkpointer, clock, tell)?, report))
}

/// Removes what is not needed any more: whatever is older than a checkpoint.
pub(crate) fn remove_older(disk: &dyn Disk, number: u64) -> io::Result<()> {
    remove(disk, |name| parse(name).is_some_and(|(_, other)| other < number))
}

fn remove(disk: &dyn Disk, which: impl Fn(&str) -> bool) -> io::Result<()> {
    let all = disk.names()?;
    all.iter().filter(|name| which(name)).try_for_each(|name| disk.remove(name))
}

struct Recovered {
    store: u64,
    /// The number of the next file, and where it begins.
    next: u64,
    position: u64,
    report: Report,
    /// Files before this are not needed.
    base: u64,
}

struct Recovery<'a> {
    disk: &'a dyn Disk,
    memory: &'a dyn Memory,
    report: Report,
}

/// A file that is read sector by sector.
struct Sectors<'a> {
    file: &'a dyn DiskFile,
    name: &'a str,
    owner: Owner,
    count: u64,
    bytes: Vec<u8>,
    first: u64,
}

impl Recovery<'_> {
    fn run(mut self) -> Result<Recovered, JournalError> {
        let (mut journals, mut checkpoints) = (Vec::new(), Vec::new());
        for file in self.disk.names().map_err(failed("the directory"))? {
            match parse(&file) {
                Some((Kind::Journal, number)) => journals.push(number),
                Some((Kind::Checkpoint, number)) => checkpoints.push(number),
                None if is_unfinished(&file) || file == "lost+found" => {}
                None => return Err(JournalError::foreign(&file, NOT_OURS)),
            }
        }
        journals.sort_unstable();
        let checkpoint = checkpoints.into_iter().max();
        let base = checkpoint.unwrap_or(1);
        let mut store = None;
        let (mut position, mut least) = (0, 0);
        if let Some(number) = checkpoint {
            (store, position, least) = self.load(number)?;
        }
        journals.retain(|number| *number >= base);
        let mut next = base;
        let mut reader = Reader::default();
        for (at, number) in journals.iter().enumerate() {
            if *number != next {
                let missing = name(Kind::Journal, next);
                return Err(JournalError::damaged(&missing, 0, "it is missing"));
            }
            let is_last = at + 1 == journals.len();
            position = self.replay(*number, &mut store, position, is_last, &mut reader)?;
            next += 1;
        }
        if checkpoint.is_some() && journals.is_empty() || position < least {
            return Err(JournalError::damaged(
                &name(Kind::Journal, next),
                0,
                "what the checkpoint needs of the journal is missing",
            ));
        }
        let store = match store {
            Some(store) => store,
            None => random()?,
        };
        self.report.replayed = reader.count;
        Ok(Recovered { store, next, position, report: self.report, base })
    }

    fn head(
        &self,
        file: &dyn DiskFile,
        name: &str,
        store: &mut Option<u64>,
    ) -> Result<Head, JournalError> {
        let head = Head::read(file, name)?;
        let head =
            head.ok_or_else(|| JournalError::damaged(name, 0, "its first sector is gone"))?;
        if *store.get_or_insert(head.store) != head.store {
            return Err(JournalError::foreign(
                name,
                "it belongs to another node than the other files here",
            ));
        }
        let words = self.memory.words().len() as u64;
        if head.memory > words {
            let (there, here) = (head.memory * 8, words * 8);
            let what = format!(
                "it is of {there} bytes of memory, and there are {here}; give as much memory as before, or more"
            );
            return Err(JournalError::foreign(name, what));
        }
        Ok(head)
    }

    fn store(memory: &dyn Memory, at: u64, words: &[u64]) -> bool {
        let place = memory.words().get(at as usize..).and_then(|rest| rest.get(..words.len()));
        let Some(place) = place else { return false };
        place.iter().zip(words).for_each(|(to, from)| to.store(*from, Ordering::Relaxed));
        true
    }

    /// Reads a checkpoint: whose it is, and from where to where the journal must be read.
    fn load(&mut self, number: u64) -> Result<(Option<u64>, u64, u64), JournalError> {
        let name = name(Kind::Checkpoint, number);
        let file = self.disk.open(&name).map_err(failed(&name))?;
        let mut store = None;
        let head = self.head(&*file, &name, &mut store)?;
        let mut sectors = Sectors::new(&*file, &name, head.owner())?;
        let damaged =
            |sector: u64, what: &str| JournalError::damaged(&name, sector * SECTOR as u64, what);
        let Found::Whole(Part::Batch) = sectors.look(SUMMARY)? else {
            return Err(damaged(SUMMARY, "it does not say what is in it"));
        };
        let [mut left, settled, time, ..] = words(sectors.sector(SUMMARY)?);
        self.report.time = time;
        let mut reader = Reader::default();
        for sector in FIRST..sectors.count {
            if sectors.look(sector)? != Found::Whole(Part::Rest) {
                return Err(damaged(sector, "a sector is damaged"));
            }
            let all = words(sectors.sector(sector)?);
            let some = &all[..WORDS.min(left as usize)];
            left -= some.len() as u64;
            let mut fits = true;
            reader.take(some, |at, words| {
                fits &= Self::store(self.memory, at, words);
                self.report.checkpoint_bytes += words.len() as u64 * 8;
            });
            if !fits {
                return Err(damaged(sector, "it speaks of more memory than there is"));
            }
        }
        if left > 0 || !reader.is_whole() {
            return Err(damaged(sectors.count, "it ends too early"));
        }
        Ok((store, head.position, settled))
    }

    /// Reads a journal file; the position at its end.
    fn replay(
        &mut self,
        number: u64,
        store: &mut Option<u64>,
        position: u64,
        is_last: bool,
        reader: &mut Reader,
    ) -> Result<u64, JournalError> {
        let name = name(Kind::Journal, number);
        let file = self.disk.open(&name).map_err(failed(&name))?;
        let head = self.head(&*file, &name, store)?;
        if head.position != position {
            let what = "what was before it is missing";
            return Err(JournalError::damaged(&name, 0, what));
        }
        let mut sectors = Sectors::new(&*file, &name, head.owner())?;
        let mut known = Vec::with_capacity(sectors.count as usize);
        for sector in 0..sectors.count {
            let found = sectors.look(sector)?;
            if found == Found::Damaged {
                return Err(JournalError::damaged(
                    &name,
                    sector * SECTOR as u64,
                    "a sector is damaged",
                ));
            }
            known.push(found);
        }
        let (mut at, mut position) = (1, position);
        while known.get(at as usize) == Some(&Found::Whole(Part::Batch)) {
            let Some(batch) = sectors.batch(at, &known)? else { break };
            let [before, _, length, time] = batch[..BATCH_HEAD] else { unreachable!("so long") };
            if before != position {
                return Err(JournalError::damaged(
                    &name,
                    at * SECTOR as u64,
                    "a batch is not in its place",
                ));
            }
            let mut fits = true;
            reader.take(&batch[BATCH_HEAD..], |at, words| {
                fits &= Self::store(self.memory, at, words)
            });
            if !fits || !reader.is_whole() {
                return Err(JournalError::damaged(
                    &name,
                    at * SECTOR as u64,
                    "it speaks of more memory than there is",
                ));
            }
            position += length;
            self.report.time = self.report.time.max(time);
            at += batch.len().div_ceil(WORDS) as u64;
        }
        self.judge_rest(&mut sectors, &known, at, position)?;
        if is_last {
            // What is there may not be durable yet, and what comes next builds on it.
            file.sync().map_err(failed(&name))?;
        } else {
            self.report.torn = None;
        }
        Ok(position)
    }

    /// Something may have been under way when the power went. Nobody may have been promised that it is there.
    fn judge_rest(
        &mut self,
        sectors: &mut Sectors<'_>,
        known: &[Found],
        at: u64,
        position: u64,
    ) -> Result<(), JournalError> {
        let rest = (at..).zip(&known[known.len().min(at as usize)..]);
        let rest: Vec<(u64, Found)> = rest
            .filter(|(_, found)| **found != Found::Empty)
            .map(|(at, found)| (at, *found))
            .collect();
        for (sector, found) in &rest {
            if *found == Found::Whole(Part::Batch) {
                let [_, durable, ..] = words(sectors.sector(*sector)?);
                if durable > position {
                    let what = "what was durable is missing from here on";
                    return Err(JournalError::damaged(sectors.name, at * SECTOR as u64, what));
                }
            }
        }
        if !rest.is_empty() {
            self.report.torn = Some((sectors.name.into(), at * SECTOR as u64));
        }
        Ok(())
    }
}

impl<'a> Sectors<'a> {
    fn new(file: &'a dyn DiskFile, name: &'a str, owner: Owner) -> Result<Self, JournalError> {
        let bytes = file.len().map_err(failed(name))?;
        if !bytes.is_multiple_of(SECTOR as u64) {
            return Err(JournalError::damaged(name, bytes, "it ends in the middle of a sector"));
        }
        let count = bytes / SECTOR as u64;
        Ok(Sectors { file, name, owner, count, bytes: Vec::new(), first: 0 })
    }

    fn sector(&mut self, number: u64) -> Result<&[u8], JournalError> {
        let there = (self.bytes.len() / SECTOR) as u64;
        if number < self.first || number >= self.first + there {
            let some = (self.count - number).min(AT_ONCE as u64) as usize;
            self.bytes.resize(some * SECTOR, 0);
            let read = self.file.read_at(number * SECTOR as u64, &mut self.bytes);
            if read.map_err(failed(self.name))? < self.bytes.len() {
                return Err(JournalError::damaged(
                    self.name,
                    number * SECTOR as u64,
                    "it ends too early",
                ));
            }
            self.first = number;
        }
        let at = (number - self.first) as usize * SECTOR;
        Ok(&self.bytes[at..at + SECTOR])
    }

    fn look(&mut self, number: u64) -> Result<Found, JournalError> {
        let owner = self.owner;
        self.sector(number).map(|sector| owner.look(number, sector))
    }

    /// A batch that begins at a sector; `None` if not all of it is there.
    fn batch(&mut self, at: u64, known: &[Found]) -> Result<Option<Vec<u64>>, JournalError> {
        let [_, _, length, ..] = words(self.sector(at)?);
        let all = BATCH_HEAD as u64 + length;
        let sectors = all.div_ceil(WORDS as u64);
        let rest = known.get(at as usize + 1..).unwrap_or_default();
        let Some(rest) = rest.get(..sectors as usize - 1) else { return Ok(None) };
        if rest.iter().any(|found| *found != Found::Whole(Part::Rest)) {
            return Ok(None);
        }
        let mut batch = Vec::with_capacity(all as usize);
        for sector in at..at + sectors {
            batch.extend(words(self.sector(sector)?));
        }
        batch.truncate(all as usize);
        Ok(Some(batch))
    }
}

fn random() -> Result<u64, JournalError> {
    let mut bytes = [0; 8];
    let got = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    got.map_err(|error| JournalError::disk("drawing a random number", &error.into()))?;
    Ok(u64::from_le_bytes(bytes))
}
