//! A memory node: words, what of them is persistent, and its NIC.

use std::collections::{BTreeSet, HashSet};
use std::rc::Rc;

use farside_fabric::runtime::Random;
use farside_fabric::{ClientId, Persistence, Services};

use crate::busy::Meter;
use crate::digest::Digest;
use crate::nic::Nics;
use crate::process::Clock;
use crate::profile::Profile;

/// How many grains of persistent memory a node merges writes to: 16 KB of each module (Yang et al., FAST 2020), six modules
/// (ford-setup-pm-modules-per-node). That such a buffer merges is in `drtmx` §2.3.2.
const MERGED_GRAINS: usize = 6 * (16 << 10) / 256;

pub(crate) struct Node {
    pub(crate) alive: bool,
    /// How long a message is on its way.
    pub(crate) wire: u64,
    /// Counts restarts: queues know the one they were connected to.
    pub(crate) incarnation: u32,
    pub(crate) paused_until: u64,
    pub(crate) exposed: bool,
    pub(crate) memory: Vec<u64>,
    /// What would be left after a loss of power, without what was not flushed.
    persistent: Vec<u64>,
    /// Lines that differ, or may differ, from what is persistent.
    dirty: BTreeSet<u32>,
    /// Writes since the last flush, where persistence is ordered: word and value.
    unflushed: Vec<(u32, u64)>,
    ordered: bool,
    /// Which lines leave the caches early.
    random: Random,
    pub(crate) nics: Nics,
    pub(crate) fenced: HashSet<ClientId>,
    pub(crate) services: Rc<Services>,
    pub(crate) clock: Clock,
    /// When its memory has absorbed all writes.
    pub(crate) written_at: u64,
    /// For how long it was at that.
    pub(crate) absorbing: Meter,
    /// Grains that its buffer holds, where it is persistent.
    merging: Vec<u64>,
    /// How long reads since the last write keep writes waiting, where it is persistent.
    reading: u64,
    pub(crate) cpu_free: u64,
}

impl Node {
    /// Nobody uses its memory any more.
    pub(crate) fn forget(&mut self) {
        (self.memory, self.persistent, self.unflushed) = Default::default();
        self.dirty.clear();
    }

    pub(crate) fn new(profile: &Profile, bytes: u64, random: Random) -> Self {
        let words = (bytes + profile.on_chip_bytes) as usize / 8;
        Node {
            alive: true,
            wire: profile.wire,
            incarnation: 0,
            paused_until: 0,
            exposed: false,
            memory: vec![0; words],
            persistent: if profile.persistence == Persistence::Volatile {
                Vec::new()
            } else {
                vec![0; words]
            },
            dirty: BTreeSet::new(),
            unflushed: Vec::new(),
            ordered: profile.persistence == Persistence::Ordered,
            random,
            nics: Nics::new(profile),
            fenced: HashSet::new(),
            services: Rc::default(),
            clock: Clock::default(),
            written_at: 0,
            absorbing: Meter::default(),
            merging: vec![u64::MAX; MERGED_GRAINS],
            reading: 0,
            cpu_free: 0,
        }
    }

    /// Whether an address is on the NIC.
    pub(crate) fn is_on_chip(&self, profile: &Profile, at: u64) -> bool {
        at >= self.memory.len() as u64 * 8 - profile.on_chip_bytes
    }

    /// Stores words, and remembers that they are not persistent yet.
    #[inline]
    pub(crate) fn store(&mut self, at: u64, words: &[u64]) {
        let first = (at / 8) as usize;
        if !self.persistent.is_empty() {
            if self.ordered {
                self.unflushed.extend((first as u32..).zip(words.iter().copied()));
            } else {
                self.soil(first as u32 / 8..=(first + words.len() - 1) as u32 / 8);
            }
        }
        self.memory[first..first + words.len()].copy_from_slice(words);
    }

    /// Lines are about to change. Caches write back when they like: what stood there may have become
    /// persistent before.
    fn soil(&mut self, lines: std::ops::RangeInclusive<u32>) {
        for line in lines {
            if !self.dirty.insert(line) && self.random.below(4) == 0 {
                self.write_back(line);
            }
        }
    }

    fn write_back(&mut self, line: u32) {
        let words = line as usize * 8..(line as usize * 8 + 8).min(self.memory.len());
        self.persistent[words.clone()].copy_from_slice(&self.memory[words]);
    }

    #[inline]
    pub(crate) fn load(&self, at: u64, words: &mut [u64]) {
        let first = (at / 8) as usize;
        words.copy_from_slice(&self.memory[first..first + words.len()]);
    }

    /// Makes lines persistent (unordered), or everything executed so far (ordered).
    pub(crate) fn flush(&mut self, profile: &Profile, lines: &BTreeSet<u32>) {
        match profile.persistence {
            Persistence::Volatile => {}
            Persistence::Ordered => {
                for (word, value) in self.unflushed.drain(..) {
                    self.persistent[word as usize] = value;
                }
            }
            _ => {
                for line in lines {
                    self.write_back(*line);
                    self.dirty.remove(line);
                }
            }
        }
    }

    /// The power fails: what is left, by the adversary's choice, is what the node restarts with.
    pub(crate) fn lose_power(
        &mut self,
        profile: &Profile,
        random: &mut Random,
        digest: &mut Digest,
    ) {
        match profile.persistence {
            // Fresh pages: most were never touched.
            Persistence::Volatile => self.memory = vec![0; self.memory.len()],
            // Only what was not flushed differs.
            Persistence::Ordered => {
                let unflushed = std::mem::take(&mut self.unflushed);
                let kept = random.below(unflushed.len() as u64 + 1) as usize;
                for (word, value) in &unflushed[..kept] {
                    self.persistent[*word as usize] = *value;
                }
                for (word, _) in unflushed {
                    self.restore(word as usize, digest);
                }
            }
            _ => {
                for line in std::mem::take(&mut self.dirty) {
                    let whole = random.below(4) > 0;
                    let line_survives = random.below(2) == 0;
                    for word in line as usize * 8..(line as usize * 8 + 8).min(self.memory.len()) {
                        let survives = if whole { line_survives } else { random.below(2) == 0 };
                        if survives {
                            self.persistent[word] = self.memory[word];
                        }
                        self.restore(word, digest);
                    }
                }
            }
        }
        let main = self.memory.len() - profile.on_chip_bytes as usize / 8;
        self.memory[main..].fill(0);
    }

    /// A word is again what was persistent.
    fn restore(&mut self, word: usize, digest: &mut Digest) {
        self.memory[word] = self.persistent[word];
        digest.mix(self.memory[word]);
    }

    /// The memory takes a write of so many bytes; returns when it is absorbed. Reads in between hold it up, to an
    /// eighth of its rate and no further (ford-fig3-write-throughput-drop).
    pub(crate) fn absorb(&mut self, profile: &Profile, now: u64, at: u64, bytes: u64) -> u64 {
        let grains = at / profile.memory_grain..=(at + bytes - 1) / profile.memory_grain;
        let written: u64 = match self.persistent.is_empty() {
            true => grains.count() as u64 * profile.memory_grain,
            false => grains.map(|grain| self.write_grain(profile, grain)).sum(),
        };
        let alone = (written as f64 / profile.memory_write_bandwidth * 1000.0) as u64;
        // What was read while nothing was to be written is no matter.
        let reading = self.reading.saturating_sub(now.saturating_sub(self.written_at));
        self.reading = 0;
        let work = alone + reading.min(7 * alone);
        self.absorbing.add(work);
        self.written_at = self.written_at.max(now) + work;
        self.written_at
    }

    /// What writing into a grain of persistent memory amounts to: all of it, or a line, if it is still in the buffer
    /// that merges writes.
    fn write_grain(&mut self, profile: &Profile, grain: u64) -> u64 {
        let place = grain as usize % MERGED_GRAINS;
        match std::mem::replace(&mut self.merging[place], grain) == grain {
            true => 64.min(profile.memory_grain),
            false => profile.memory_grain,
        }
    }

    /// The memory serves a read of so many bytes.
    pub(crate) fn note_read(&mut self, profile: &Profile, at: u64, bytes: u64) {
        if !self.persistent.is_empty() {
            let grains = (at + bytes - 1) / profile.memory_grain - at / profile.memory_grain + 1;
            self.reading += grains * profile.memory_read_hold;
        }
    }
}
