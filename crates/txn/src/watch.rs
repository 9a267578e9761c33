//! What a session knows of the others, from their lines on the board: who lives, and whose locks are nobody's.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use farside_fabric::{Time, probe};

use crate::session::THREADS;
use crate::system::{Line, PLACES};
use crate::words::Lock;

/// The others, as they were seen last.
#[derive(Debug)]
pub(crate) struct Watch {
    seen: Mutex<Seen>,
    /// For each place since when its locks are those of whoever has it now.
    since: Box<[AtomicU64]>,
}

#[derive(Debug, Default)]
struct Seen {
    looked: Time,
    others: Vec<Other>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Other {
    client: u64,
    beat: u64,
    /// Since when that is so.
    changed: Time,
    /// A thread of this process repairs what it left behind.
    being_repaired: bool,
}

/// Somebody who seems to be dead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Silent {
    pub(crate) slot: u16,
    pub(crate) client: u64,
    /// The last that was heard of it.
    pub(crate) beat: u64,
}

/// A repair by a thread of this process, until it is dropped.
#[derive(Debug)]
pub(crate) struct Repairing<'w> {
    watch: &'w Watch,
    slot: u16,
}

/// How long somebody is silent before others take it for dead: it tells its beat every now and then, and whoever looks
/// does so every now and then; both together are within the lease.
pub(crate) fn patience(lease: Duration) -> Duration {
    lease - (2 * crate::horizon::TELLING).min(lease / 4)
}

impl Watch {
    pub(crate) fn new() -> Self {
        let since = (0..PLACES).map(|_| AtomicU64::new(0)).collect();
        Watch { seen: Mutex::default(), since }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All lines were read, at a time before this.
    pub(crate) fn note(&self, now: Time, lines: impl Iterator<Item = Line>, lease: Duration) {
        let mut seen = self.seen();
        // Who did not look for a while knows nothing of others.
        let was_away = now - seen.looked.min(now) > lease / 2;
        seen.looked = seen.looked.max(now);
        for (slot, line) in lines.enumerate().take(PLACES) {
            self.since[slot].fetch_max(line.since, Ordering::AcqRel);
            if slot == seen.others.len() {
                seen.others.push(Other::default());
            }
            let other = &mut seen.others[slot];
            if was_away || (other.client, other.beat) != (line.client, line.beat) {
                other.changed = now;
            }
            (other.client, other.beat) = (line.client, line.beat);
        }
    }

    /// Everybody but a client who is there and was silent for so long.
    pub(crate) fn silent(&self, now: Time, me: u64, patience: Duration) -> Vec<Silent> {
        let seen = self.seen();
        // Who did not look of late knows nothing of others: all may have been kept from the board.
        let has_looked = now - seen.looked.min(now) < patience / 4;
        let others = seen.others.iter().zip(0..).filter(|_| has_looked);
        let silent = others.filter(|(other, _)| {
            let is_there = other.client != 0 && other.client != me && !other.being_repaired;
            is_there && now - other.changed.min(now) >= patience
        });
        let silent = silent.map(|(other, slot)| (*other, slot));
        silent.map(|(Other { client, beat, .. }, slot)| Silent { slot, client, beat }).collect()
    }

    /// How long until the next one may be taken for dead; `None` if nobody will be.
    pub(crate) fn next(&self, now: Time, me: u64, patience: Duration) -> Option<Duration> {
        let seen = self.seen();
        let there = seen.others.iter().filter(|other| other.client != 0 && other.client != me);
        there.filter_map(|other| patience.checked_sub(now - other.changed.min(now))).min()
    }

    /// Whether a client, wherever its place is, is there and was heard of late.
    pub(crate) fn lives(&self, client: u64, now: Time, patience: Duration) -> bool {
        let seen = self.seen();
        let mut others = seen.others.iter();
        others.any(|other| other.client == client && now - other.changed.min(now) < patience)
    }

    /// Where a client is.
    #[cfg(feature = "traps")]
    pub(crate) fn find(&self, client: u64) -> Option<Silent> {
        let seen = self.seen();
        let mut others = seen.others.iter().zip(0..);
        let found = others.find(|(other, _)| other.client == client);
        found.map(|(other, slot)| Silent { slot, client, beat: other.beat })
    }

    /// Takes over a repair within this process; `None` if another thread is at it.
    pub(crate) fn begin(&self, slot: u16) -> Option<Repairing<'_>> {
        let mut seen = self.seen();
        let other = seen.others.get_mut(usize::from(slot))?;
        let begun = std::mem::replace(&mut other.being_repaired, true);
        (!begun).then(|| Repairing { watch: self, slot })
    }

    /// What was locked by the name of a place before a time is nobody's.
    pub(crate) fn is_repaired(&self, slot: u16, since: u64) {
        self.since[usize::from(slot)].fetch_max(since, Ordering::AcqRel);
        let mut seen = self.seen();
        seen.others[usize::from(slot)].client = 0;
    }

    /// How long the owner of a lock was not heard of: no time if nobody has its place any more.
    pub(crate) fn silence(&self, word: u64, now: Time) -> Duration {
        let seen = self.seen();
        let owner = seen.others.get(usize::from(Lock::owner_of(word) / THREADS));
        let owner = owner.filter(|other| other.client != 0);
        owner.map_or(Duration::ZERO, |other| now - other.changed.min(now))
    }

    /// Whether a lock word is that of somebody who died, and left no record of what it was about to write.
    pub(crate) fn is_orphan(&self, word: u64) -> bool {
        let slot = usize::from(Lock::owner_of(word) / THREADS);
        let since = self.since.get(slot).map_or(0, |since| since.load(Ordering::Acquire));
        let orphan = Lock::time_of(word) <= since;
        if orphan {
            probe!("a lock is nobody's");
        }
        orphan
    }
}

impl Drop for Repairing<'_> {
    fn drop(&mut self) {
        self.watch.seen().others[usize::from(self.slot)].being_repaired = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_millis(10);

    fn line(client: u64, beat: u64, since: u64) -> Line {
        Line { client, repairer: 0, oldest: 1, floor: 1, beat, since, safe: 1 }
    }

    fn at(micros: u64) -> Time {
        Time(micros * 1000)
    }

    #[test]
    fn silence_is_noticed_and_absence_is_no_evidence() {
        let (watch, patience) = (Watch::new(), patience(LEASE));
        assert_eq!(patience, Duration::from_millis(9), "a beat and a look are within the lease");
        for tick in 0..20 {
            let lines = [line(7, tick, 1), line(8, 3, 1), line(0, 0, 0), line(9, 1, 0)];
            watch.note(at(tick * 500), lines.into_iter(), LEASE);
        }
        let silent = |now| watch.silent(at(now), 9, patience);
        assert_eq!(silent(8_999), []);
        assert_eq!(silent(9_000), [Silent { slot: 1, client: 8, beat: 3 }]);
        assert!(watch.lives(7, at(9_600), patience) && !watch.lives(8, at(9_600), patience));
        assert_eq!(watch.next(at(8_000), 9, patience), Some(Duration::from_millis(1)));
        let repairing = watch.begin(1).unwrap();
        assert!(watch.begin(1).is_none() && silent(9_600).is_empty());
        drop(repairing);
        assert_eq!(silent(9_600).len(), 1);
        // Somebody who was away for a while does not take everybody for dead.
        assert_eq!(silent(12_000), [], "it is not known who has come since");
        watch.note(at(100_000), [line(7, 20, 1), line(8, 3, 1)].into_iter(), LEASE);
        assert_eq!(silent(100_500), []);
    }

    #[test]
    fn locks_of_those_who_were_there_before_are_nobodys() {
        let watch = Watch::new();
        let word = |tick| Lock::new(2 * THREADS + 3, tick).to_word();
        assert!(!watch.is_orphan(word(10)));
        watch.note(at(0), [line(1, 1, 1), line(0, 0, 0), line(5, 1, 1280)].into_iter(), LEASE);
        assert!(
            watch.is_orphan(word(9)) && watch.is_orphan(word(10)) && !watch.is_orphan(word(11))
        );
    }
}
