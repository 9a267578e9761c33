//! FORD (`ford.txt` §4), and FORD-LV with localized validation (§4.7).
//!
//! | phase | round trips |
//! | --- | --- |
//! | execute: lock and read what will be written, read the rest from any copy; undo records as soon as that is there | 1 |
//! | validate what was only read; also where nothing is written | 1, FORD-LV none, or 1 to a node that is near |
//! | commit: bodies to all copies at once | 1 |
//! | release | in the background |
//!
//! What is different from the paper, and why:
//! - Backups are locked in the execute phase, with the primaries, and not when they are written: a copy could still be
//!   locked by whoever had the lock before, and the body behind a CAS that fails is written all the same. The lock is
//!   the invisible bit: there is a CAS for each copy, as in the paper, and one less at the primary.
//! - Validation looks at locks, where something is written: two that read what the other writes would both pass.
//! - The version cache knows of writes that are about to happen (the same, for FORD-LV), and that others may have
//!   changed what shares a stamp; then the copies are asked.
//! - Whoever finds a lock waits until it is released, also where nothing is written yet: whoever has it may have validated, and is before all
//!   who have ended since then (`docs/protocols.md`). That is a re-read, as in §4.3.2, for a little longer.
//! - Undo records are not waited for where a node keeps the order of writes: they are ahead of the bodies in the same queue. Where
//!   persistence has no order they are flushed, and waited for.
//! - With the flush of backups alone, what was committed survives only where a node that lost its power is replaced from
//!   the others, and does not come back with what it has. So it is for the simulator; databases flush all nodes.

use super::{Conflicts, Copies, Flush, Locking, Protocol, Undo, Versions};

pub(super) const FORD: Protocol = Protocol {
    name: "ford",
    locking: Locking::Hitchhiked,
    conflicts: Conflicts::Abort,
    undo: Undo::Parallel,
    copies: Copies::Together,
    flush: Flush::Backups,
    looks_twice: true,
    backup_reads: true,
    versions: Versions::Copies,
    address_cache: true,
    old_versions: false,
    opacity: false,
    early_snapshots: false,
};

pub(super) const FORD_LV: Protocol =
    Protocol { name: "ford-lv", versions: Versions::Process, ..FORD };

pub(super) const FORD_LV_NODE: Protocol =
    Protocol { name: "ford-lv-node", versions: Versions::Node, ..FORD };

pub(super) const FORD_LV_SWITCH: Protocol =
    Protocol { name: "ford-lv-switch", versions: Versions::Switch, ..FORD };
