//! The table of a region: one word per chunk, which names the owner of its slab.

use std::collections::BTreeMap;

use farside_fabric::{Queue, Result, Worker};

use super::SizeClass;
use super::slab::CHUNK_BYTES;

/// Where the table is, and how much of a region it takes: whole chunks.
pub const REGION_HEAD_BYTES: u64 = CHUNK_BYTES;

/// A region as a heap reaches it: the queues to its replicas with where it begins there, the primary
/// first.
#[derive(Clone, Debug)]
pub struct Place {
    /// Its number.
    pub region: crate::RegionId,
    /// Its size.
    pub bytes: u64,
    /// Its replicas.
    pub replicas: Vec<(Queue, u64)>,
}

/// How many words are read at once.
const READS_PER_ROUND: usize = 1024;

/// What a chunk's word says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    /// Whose it is: 48 bits, never 0.
    pub(super) owner: u64,
    pub(super) class: SizeClass,
    /// It is not the first chunk of its slab.
    pub(super) inner: bool,
}

impl Entry {
    pub(super) fn to_word(self) -> u64 {
        self.owner << 16 | u64::from(self.inner) << 8 | u64::from(self.class.number())
    }

    pub(super) fn from_word(word: u64) -> Option<Self> {
        let (owner, class) = (word >> 16, SizeClass::from_number(word as u8)?);
        (owner != 0).then_some(Entry { owner, class, inner: word >> 8 & 1 == 1 })
    }
}

impl Place {
    /// How many chunks there are; the first is the table's.
    pub(super) fn chunks(&self) -> u64 {
        (self.bytes / CHUNK_BYTES).min(REGION_HEAD_BYTES / 8)
    }

    /// The whole table.
    pub(super) async fn read_table(&self, worker: &Worker) -> Result<Vec<u64>> {
        let (primary, base) = &self.replicas[0];
        let mut round = worker.round();
        let table = round.to(primary).read(*base, self.chunks() as usize * 8);
        Ok(round.ring().await?[table].to_vec())
    }

    /// How many chunks are free, and how many slabs there are by the bytes of their objects.
    pub(crate) async fn usage(&self, worker: &Worker) -> Result<(u64, BTreeMap<u64, u64>)> {
        let mut slabs = BTreeMap::new();
        if self.chunks() < 2 {
            return Ok((0, slabs));
        }
        let table = self.read_table(worker).await?;
        let free = table.iter().skip(1).filter(|word| **word == 0).count();
        for entry in table.iter().filter_map(|word| Entry::from_word(*word)) {
            *slabs.entry(entry.class.bytes()).or_default() += u64::from(!entry.inner);
        }
        Ok((free as u64, slabs))
    }

    /// Single words at these offsets of the region, from the primary.
    pub(super) async fn read_words(&self, worker: &Worker, offsets: &[u64]) -> Result<Vec<u64>> {
        let (primary, base) = &self.replicas[0];
        let mut words = Vec::with_capacity(offsets.len());
        for some in offsets.chunks(READS_PER_ROUND) {
            let mut round = worker.round();
            let mut bell = round.to(primary);
            let tickets: Vec<_> = some.iter().map(|offset| bell.read(base + offset, 8)).collect();
            let done = round.ring().await?;
            words.extend(tickets.into_iter().map(|ticket| done[ticket][0]));
        }
        Ok(words)
    }

    /// Changes the words of a run of chunks from one value to another, all or none: at the primary by CAS,
    /// then at the other replicas. `false` if they were not what was expected.
    pub(super) async fn change(
        &self,
        worker: &Worker,
        chunk: u64,
        words: &[(u64, u64)],
    ) -> Result<bool> {
        let (primary, base) = &self.replicas[0];
        let at = |number: usize| (chunk + number as u64) * 8;
        for (number, (old, new)) in words.iter().enumerate() {
            let mut round = worker.round();
            let found = round.to(primary).cas(base + at(number), *old, *new);
            if round.ring().await?[found] == *old {
                continue;
            }
            let mut round = worker.round();
            for (number, (old, new)) in words[..number].iter().enumerate() {
                round.to(primary).cas(base + at(number), *new, *old);
            }
            round.ring().await?;
            return Ok(false);
        }
        let new: Vec<u64> = words.iter().map(|(_, new)| *new).collect();
        let mut round = worker.round();
        for (backup, base) in &self.replicas[1..] {
            round.to(backup).write(base + at(0), &new);
        }
        round.ring().await?;
        Ok(true)
    }
}
