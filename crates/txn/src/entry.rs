//! What a transaction knows of an object.

use crate::object::{Target, Version};
use crate::turns::Turn;

/// The time of an object that was not read.
pub(crate) const UNSEEN: u64 = u64::MAX;

/// What a transaction knows of an object.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) target: Target,
    /// As it was read.
    pub(crate) version: Version,
    /// It is locked, on all replicas.
    pub(crate) locked: bool,
    /// It will be locked: as soon as all was read, by protocols that lock then.
    pub(crate) claimed: bool,
    /// It was locked, and nobody has looked since then whether it is still as it was read.
    pub(crate) unproved: bool,
    /// Lock CASes were posted: to be taken back.
    pub(crate) posted: bool,
    /// The version cache of a node knows that it may be written.
    pub(crate) marked: bool,
    /// It is at a place that was just allocated.
    pub(crate) fresh: bool,
    /// What was read here must still be so at the commit.
    pub(crate) counts: bool,
    /// Something depends on it for sure.
    pub(crate) needed: bool,
    /// Our turn among those of this process who want to lock it.
    pub(crate) turn: Option<Turn>,
    /// What will be written.
    pub(crate) new: Option<Version>,
}

impl Entry {
    /// Not seen yet.
    pub(crate) fn new(target: Target) -> Self {
        let version = Version { ts: UNSEEN, ..Version::default() };
        Entry {
            target,
            version,
            locked: false,
            claimed: false,
            unproved: false,
            posted: false,
            marked: false,
            fresh: false,
            counts: true,
            needed: false,
            turn: None,
            new: None,
        }
    }

    /// It is to be written, and not locked yet.
    pub(crate) fn is_late(&self) -> bool {
        self.new.is_some() && !self.locked
    }

    pub(crate) fn is_seen(&self) -> bool {
        self.version.ts != UNSEEN
    }

    /// It is to be looked at again.
    pub(crate) fn forget(&mut self) {
        self.version = Version { ts: UNSEEN, ..Version::default() };
    }

    /// It was only read, nobody needs it, and nothing is to be written there that was made of it.
    pub(crate) fn proves_nothing(&self) -> bool {
        !self.locked && !self.counts && self.new.is_none()
    }

    /// It was only read, and counts.
    pub(crate) fn is_only_read(&self) -> bool {
        !self.locked && self.counts && self.is_seen()
    }
}
