//! What is left of a transaction whose session is dead, and how it ends.
//!
//! **It is committed if its records name all its objects, and every replica of each of them has its version, or a later
//! one; where it still holds the lock, a whole one. Otherwise it is aborted.**
//!
//! - It reported a commit only when all replicas had its versions: then they have them, or later ones.
//! - An object that it does not hold any more, and that is newer than its commit time, was written by somebody who
//!   locked it after it was released: by its coordinator, which does that when all have acknowledged; or by a
//!   repairer, which does that when all is decided and done.
//! - It aborts by itself only when no record was posted: then there is nothing to restore.
//! - When nothing holds its lock any more there is nothing to decide, and such a transaction does not come here.

use farside_pool::Addr;

use crate::object::Version;

/// A transaction of the dead that still holds a lock.
#[derive(Debug)]
pub(super) struct Remains {
    /// Its name, in the locks that it holds.
    pub(super) id: u64,
    /// Its commit time.
    pub(super) time: u64,
    /// How many objects it was to write.
    pub(super) count: u64,
    /// Those that records name.
    pub(super) objects: Vec<Object>,
}

#[derive(Debug)]
pub(super) struct Object {
    pub(super) addr: Addr,
    pub(super) room: u32,
    pub(super) fresh: bool,
    pub(super) erased: bool,
    /// On each replica.
    pub(super) copies: Vec<Copy>,
}

/// What is on a replica.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Copy {
    /// The transaction has the lock.
    pub(super) held: bool,
    /// The commit time of what is there.
    pub(super) ts: u64,
    /// It is not torn.
    pub(super) whole: bool,
    /// What was there before, from the replica's own record.
    pub(super) old: Option<Version>,
    /// It is in the making: it counts only where the transaction holds its lock.
    pub(super) joining: bool,
}

impl Copy {
    pub(super) fn new(joining: bool) -> Self {
        Copy { joining, ..Copy::default() }
    }

    fn is_installed(&self, time: u64) -> bool {
        self.joining && !self.held || self.ts >= time && (self.whole || !self.held)
    }
}

/// An old version that is put back.
pub(super) struct Restore {
    pub(super) object: Addr,
    pub(super) replica: usize,
    /// The place was just allocated: it is free again.
    pub(super) fresh: bool,
    /// From `ts` on.
    pub(super) words: Vec<u64>,
}

impl Remains {
    pub(super) fn is_committed(&self) -> bool {
        self.objects.len() as u64 == self.count && self.is_installed()
    }

    /// Every object that a record names is there, on all replicas.
    pub(super) fn is_installed(&self) -> bool {
        let mut copies = self.objects.iter().flat_map(|object| &object.copies);
        copies.all(|copy| copy.is_installed(self.time))
    }

    /// One of its objects is not held on some replica.
    pub(super) fn is_partly_released(&self) -> bool {
        let mut copies = self.objects.iter().flat_map(|object| &object.copies);
        copies.any(|copy| !copy.held && !copy.joining)
    }

    pub(super) fn is_held(&self) -> bool {
        self.objects.iter().flat_map(|object| &object.copies).any(|copy| copy.held)
    }

    /// All old versions: wherever the lock is held, and the replica has the record, whatever is there now. Without a record
    /// nothing was written there.
    pub(super) fn restores(&self) -> impl Iterator<Item = Restore> {
        self.objects.iter().flat_map(|object| {
            let held = object.copies.iter().enumerate().filter(|(_, copy)| copy.held);
            held.filter_map(|(replica, copy)| {
                let old = copy.old.as_ref()?;
                let mut words = Vec::new();
                match object.fresh {
                    true => words.resize(4, 0),
                    false => old.extend(old.ts, old.prev, &mut words),
                }
                Some(Restore { object: object.addr, replica, fresh: object.fresh, words })
            })
        })
    }

    /// Its locks, as far as they are known.
    pub(super) fn locks(&self) -> impl Iterator<Item = (Addr, u64)> {
        self.objects.iter().map(|object| (object.addr, self.id))
    }

    /// What it has deleted.
    pub(super) fn erased(&self) -> impl Iterator<Item = Addr> {
        self.objects.iter().filter(|object| object.erased).map(|object| object.addr)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farside_pool::RegionId;

    fn object(offset: u64, copies: Vec<Copy>) -> Object {
        let addr = Addr::new(RegionId(1), offset).unwrap();
        Object { addr, room: 2, fresh: false, erased: false, copies }
    }

    fn copy(held: bool, ts: u64, whole: bool) -> Copy {
        let old = Some(Version { ts: 5, ..Version::of(0, &[b"old"]) });
        Copy { held, ts, whole, old, joining: false }
    }

    #[test]
    fn what_is_everywhere_is_committed_and_nothing_else() {
        let remains = |count, copies: [[Copy; 2]; 2]| Remains {
            id: 7,
            time: 10,
            count,
            objects: copies.map(|copies| object(64, copies.to_vec())).into(),
        };
        let there = || [copy(true, 10, true), copy(true, 10, true)];
        assert!(remains(2, [there(), there()]).is_committed());
        assert!(!remains(3, [there(), there()]).is_committed(), "a record is missing");
        let torn = [copy(true, 10, true), copy(true, 10, false)];
        assert!(!remains(2, [there(), torn]).is_committed());
        let missing = [copy(true, 10, true), copy(true, 5, true)];
        assert!(!remains(2, [there(), missing.clone()]).is_committed());
        // Somebody else writes there, after it was released.
        let later = [copy(false, 12, false), copy(true, 10, true)];
        assert!(remains(2, [there(), later]).is_committed());
        // A copy in the making counts only where it is locked.
        let joining = |held| Copy { joining: true, ..copy(held, 5, true) };
        assert!(remains(2, [there(), [copy(true, 10, true), joining(false)]]).is_committed());
        assert!(!remains(2, [there(), [copy(true, 10, true), joining(true)]]).is_committed());
        let aborted = remains(2, [there(), missing]);
        assert_eq!(aborted.restores().count(), 4, "whatever is there now");
    }
}
