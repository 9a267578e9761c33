//! The default: the best of each paper (`ARCHITECTURE.md` has the whole protocol).
//!
//! | phase | round trips |
//! | --- | --- |
//! | execute: lock on every copy and read behind that at the primary; read the rest at a snapshot, from any copy | 1 |
//! | validate what was only read, when the commit time is past | 1; none, and no wait, where one process writes: with a version cache |
//! | commit: undo record and body to all copies at once | 1 |
//! | release | in the background |
//!
//! Transactions that only read take one round trip, and are never aborted by those who write.

use super::{Conflicts, Copies, Flush, Locking, Protocol, Undo, Versions};

pub(super) const FARSIDE: Protocol = Protocol {
    name: "farside",
    locking: Locking::Hitchhiked,
    conflicts: Conflicts::Queue,
    undo: Undo::Combined,
    copies: Copies::Together,
    flush: Flush::Nodes,
    looks_twice: false,
    backup_reads: true,
    // It is sound only where all who write share it.
    versions: Versions::ProcessIfAlone,
    address_cache: true,
    old_versions: true,
    opacity: true,
    early_snapshots: true,
};

/// The same with localized validation (`ford.txt` §4.7) in any case: what was only read is looked at in the memory of the process.
pub(super) const FARSIDE_LV: Protocol =
    Protocol { name: "farside-lv", versions: Versions::Process, ..FARSIDE };
