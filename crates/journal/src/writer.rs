//! Batches go to the journal file at hand, one after the other; when it is full, to the next one.

use std::io;
use std::sync::Arc;

use crate::disk::{Disk, DiskFile};
use crate::sector::{Part, SECTOR, WORDS};
use crate::segment::{Head, Kind, begin};

/// Words before those of a batch: how many were appended before it, how many of them were durable for sure, how many it has,
/// and what time it was.
pub(crate) const BATCH_HEAD: usize = 4;

pub(crate) struct Writer {
    disk: Arc<dyn Disk>,
    head: Head,
    file: Box<dyn DiskFile>,
    next: u64,
    /// How many sectors the file has, and files have usually.
    sectors: u64,
    usual: u64,
    /// Words that were appended so far.
    pub(crate) position: u64,
    /// Bytes that were written so far.
    pub(crate) written: u64,
    unsynced: bool,
    words: Vec<u64>,
    bytes: Vec<u8>,
}

impl Writer {
    /// Goes on in a new file.
    pub(crate) fn new(disk: &Arc<dyn Disk>, head: Head, bytes: u64) -> io::Result<Self> {
        let usual = (bytes / SECTOR as u64).max(2);
        let (file, sectors) = (open(&**disk, &head, usual)?, usual);
        Ok(Writer {
            disk: Arc::clone(disk),
            head,
            file,
            next: 1,
            sectors,
            usual,
            position: head.position,
            written: 0,
            unsynced: false,
            words: Vec::new(),
            bytes: Vec::new(),
        })
    }

    /// Writes a batch, which is not durable yet.
    pub(crate) fn write(&mut self, batch: &[u64], durable: u64, time: u64) -> io::Result<()> {
        let sectors = (BATCH_HEAD + batch.len()).div_ceil(WORDS) as u64;
        if self.next + sectors > self.sectors {
            self.rotate(sectors)?;
        }
        self.words.clear();
        self.words.extend_from_slice(&[self.position, durable, batch.len() as u64, time]);
        self.words.extend_from_slice(batch);
        self.bytes.clear();
        self.head.owner().frame(self.next, Part::Batch, &self.words, &mut self.bytes);
        self.file.write_at(self.next * SECTOR as u64, &self.bytes)?;
        self.next += sectors;
        self.position += batch.len() as u64;
        self.written += self.bytes.len() as u64;
        self.unsynced = true;
        Ok(())
    }

    /// All that was written is durable after this.
    pub(crate) fn sync(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.unsynced) {
            self.file.sync()?;
        }
        Ok(())
    }

    /// Goes on in another file, which has room for so many sectors; that and the position at which it begins.
    pub(crate) fn rotate(&mut self, sectors: u64) -> io::Result<(u64, u64)> {
        // What comes there is durable only if all before is.
        self.sync()?;
        self.head = Head { number: self.head.number + 1, position: self.position, ..self.head };
        self.sectors = self.usual.max(sectors + 1);
        self.file = open(&*self.disk, &self.head, self.sectors)?;
        self.next = 1;
        Ok((self.head.number, self.position))
    }
}

fn open(disk: &dyn Disk, head: &Head, sectors: u64) -> io::Result<Box<dyn DiskFile>> {
    debug_assert_eq!(head.kind, Kind::Journal);
    let (unfinished, file) = begin(disk, head, sectors * SECTOR as u64)?;
    file.sync()?;
    disk.rename(&unfinished, &head.name())?;
    disk.sync()?;
    Ok(file)
}
