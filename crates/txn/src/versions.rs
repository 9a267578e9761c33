//! A version cache (`ford.txt` §4.7): whether an object is still as it was read, answered in the memory of a compute node.
//!
//! It is sound only if all who write share it. A writer marks what it is about to write when it has all its locks, before it takes its
//! commit time and looks at what it has only read; so of two that read what the other writes, one sees the other's mark. Knowing nothing
//! is always fine: then the copies are asked. So anything may be thrown out at any time, also what is marked, and the cache
//! needs no more memory than it was given.
//!
//! Whoever shares it shares an order of commit times, too: each is later than all that were taken before. So nobody who marks something
//! after it was looked at commits before whoever has looked, and that one need not wait until its own time is past
//! (`docs/time.md`).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use farside_pool::Addr;

use crate::words::place_of;

/// Objects that share a lock.
const WAYS: usize = 4;

/// How many objects are known, at most.
const OBJECTS: usize = 1 << 20;

/// What is known of an object.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// The address as a word; 0: nothing is known.
    addr: u64,
    /// Of the newest version; 0: unknown, it is only marked.
    version: u64,
    /// By whom it is about to be written; 0: nobody.
    mark: u64,
}

#[derive(Debug, Default)]
struct Set {
    ways: [Known; WAYS],
    /// Counts marks: what was learned before one is not to be noted after it.
    marks: u32,
    /// Who is thrown out next.
    next: u32,
}

/// What the cache says of an object that was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    /// It is still so.
    Same,
    /// It is not.
    Changed,
    /// Nothing, or somebody is about to write it; with that, what the copies say can be noted.
    Unknown(u32),
}

/// Versions of objects, shared by the threads of a process.
#[derive(Debug)]
pub struct VersionCache {
    sets: Box<[Mutex<Set>]>,
    /// The latest commit time that anybody has taken.
    latest: Latest,
}

/// In a line of its own: all who commit write it.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Latest(AtomicU64);

impl Default for VersionCache {
    fn default() -> Self {
        Self::with_room(OBJECTS)
    }
}

impl VersionCache {
    fn with_room(objects: usize) -> Self {
        let sets = (0..(objects / WAYS).max(1)).map(|_| Mutex::default()).collect();
        VersionCache { sets, latest: Latest::default() }
    }

    /// How many bytes it takes, however much is in it.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.sets)
    }

    fn set(&self, addr: Addr) -> MutexGuard<'_, Set> {
        let at = place_of(addr, self.sets.len() as u64);
        self.sets[at as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A commit time that is not earlier than `least`, and later than all that were taken here before.
    pub(crate) fn take_time(&self, least: u64) -> u64 {
        let later = |latest: u64| Some(least.max(latest + 1));
        let (done, seen) = (Ordering::AcqRel, Ordering::Acquire);
        let before = self.latest.0.fetch_update(done, seen, later).unwrap_or_else(|it| it);
        least.max(before + 1)
    }

    /// Whether an object is still at a version.
    pub(crate) fn ask(&self, addr: Addr, version: u64) -> Answer {
        let mut set = self.set(addr);
        match set.find(addr) {
            Some(known) if known.mark == 0 && known.version == version => Answer::Same,
            Some(known) if known.mark == 0 => Answer::Changed,
            _ => Answer::Unknown(set.marks),
        }
    }

    /// An object is about to be written by a transaction, which has its lock.
    pub(crate) fn mark(&self, addr: Addr, transaction: u64) {
        let mut set = self.set(addr);
        set.marks = set.marks.wrapping_add(1);
        match set.find(addr) {
            Some(known) => {
                // Whoever has marked it before has not said how that ended.
                known.version = if known.mark == 0 { known.version } else { 0 };
                known.mark = transaction;
            }
            None => set.insert(Known { addr: addr.to_word(), version: 0, mark: transaction }),
        }
    }

    /// It was written; or it was not, and is as it was.
    pub(crate) fn settle(&self, addr: Addr, transaction: u64, version: Option<u64>) {
        let mut set = self.set(addr);
        let Some(known) = set.find(addr).filter(|known| known.mark == transaction) else { return };
        known.mark = 0;
        known.version = version.unwrap_or(known.version);
        if known.version == 0 {
            *known = Known::default();
        }
    }

    /// The copies say that an object is at a version, and nobody has its lock; they were asked after this cache was, which knew nothing.
    pub(crate) fn note(&self, addr: Addr, version: u64, marks: u32) {
        let mut set = self.set(addr);
        if set.marks == marks && set.find(addr).is_none() {
            set.insert(Known { addr: addr.to_word(), version, mark: 0 });
        }
    }
}

impl Set {
    fn find(&mut self, addr: Addr) -> Option<&mut Known> {
        let word = addr.to_word();
        self.ways.iter_mut().find(|known| known.addr == word)
    }

    /// In a free place, or in that of another one.
    fn insert(&mut self, known: Known) {
        let free = self.ways.iter().position(|known| known.addr == 0);
        let at = free.unwrap_or_else(|| {
            self.next = self.next.wrapping_add(1);
            self.next as usize % WAYS
        });
        self.ways[at] = known;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farside_pool::RegionId;

    fn addr(number: u64) -> Addr {
        Addr::new(RegionId(1), number * 64).unwrap()
    }

    #[test]
    fn what_the_copies_say_is_noted_unless_somebody_writes_meanwhile() {
        let versions = VersionCache::default();
        let Answer::Unknown(marks) = versions.ask(addr(1), 5) else { panic!("it knows something") };
        versions.note(addr(1), 5, marks);
        assert_eq!(versions.ask(addr(1), 5), Answer::Same);
        assert_eq!(versions.ask(addr(1), 4), Answer::Changed);

        let Answer::Unknown(marks) = versions.ask(addr(2), 5) else { panic!("it knows something") };
        versions.mark(addr(2), 77);
        versions.settle(addr(2), 77, Some(9));
        versions.note(addr(2), 5, marks);
        assert_eq!(versions.ask(addr(2), 5), Answer::Changed);
        assert_eq!(versions.ask(addr(2), 9), Answer::Same);
    }

    #[test]
    fn whoever_is_about_to_write_is_seen() {
        let versions = VersionCache::default();
        let is_unknown = |version| matches!(versions.ask(addr(1), version), Answer::Unknown(_));
        versions.mark(addr(1), 70);
        assert!(is_unknown(0));
        versions.settle(addr(1), 70, None);
        assert!(is_unknown(0), "nothing was known before");
        versions.mark(addr(1), 71);
        versions.settle(addr(1), 71, Some(9));
        versions.mark(addr(1), 72);
        assert!(is_unknown(9));
        versions.settle(addr(1), 72, None);
        assert_eq!(versions.ask(addr(1), 9), Answer::Same, "it was not written");
        // Whoever died has left a mark: the next one's counts.
        versions.mark(addr(1), 73);
        versions.mark(addr(1), 74);
        versions.settle(addr(1), 73, Some(10));
        assert!(is_unknown(10));
        versions.settle(addr(1), 74, Some(11));
        assert_eq!(versions.ask(addr(1), 11), Answer::Same);
        // It may have written something, or not; the next one has not.
        versions.mark(addr(1), 75);
        versions.mark(addr(1), 76);
        versions.settle(addr(1), 76, None);
        assert!(is_unknown(11));
    }

    #[test]
    fn it_needs_no_more_memory_than_it_was_given() {
        let versions = VersionCache::with_room(64);
        let bytes = versions.bytes();
        (1..1000).for_each(|number| versions.mark(addr(number), number));
        (1..1000).for_each(|number| versions.settle(addr(number), number, Some(number)));
        let known = (1..1000).filter(|number| versions.ask(addr(*number), *number) == Answer::Same);
        let known = known.count();
        assert!((48..=64).contains(&known), "{known}");
        assert_eq!(versions.bytes(), bytes);
        // What was thrown out while it was marked is unknown, not unmarked.
        versions.mark(addr(5000), 1);
        (1..1000).for_each(|number| versions.mark(addr(number), number));
        assert!(matches!(versions.ask(addr(5000), 0), Answer::Unknown(_)));
    }
}
