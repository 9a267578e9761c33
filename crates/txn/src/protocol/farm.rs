//! FaRM, re-made with one-sided verbs as `ford.txt` §6.1 compares it.
//!
//! | phase | round trips |
//! | --- | --- |
//! | execute: read from primaries | 1 |
//! | lock | 1 |
//! | validate all versions | 1 |
//! | commit backups | 1 |
//! | commit primaries, and unlock them | 1 |
//!
//! What is different from the paper, and why:
//! - There is nobody at a memory node who would move a redo log to its place: backups are written in place, with
//!   an undo record in front. A transaction counts as committed when all copies have it.
//! - Locks are taken on backups, too, in the same round trip: one of them may be the primary soon.
//! - Primaries are unlocked with the write only if they are all at one node, and nothing is to be flushed: otherwise one could be read
//!   before another is written, by those who would not see that one's lock. Then unlocking comes behind, in the background.

use super::{Conflicts, Copies, Flush, Locking, Protocol, Undo, Versions};

pub(super) const FARM: Protocol = Protocol {
    name: "farm",
    locking: Locking::BeforeValidation,
    conflicts: Conflicts::Abort,
    undo: Undo::Combined,
    copies: Copies::BackupsFirst,
    flush: Flush::Nodes,
    looks_twice: true,
    backup_reads: false,
    versions: Versions::Copies,
    address_cache: true,
    old_versions: false,
    opacity: false,
    early_snapshots: false,
};
