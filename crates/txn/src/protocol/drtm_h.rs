//! DrTM+H (`drtmx.txt` §4.4), with one-sided verbs alone, as `ford.txt` §6.1 compares it.
//!
//! | phase | round trips |
//! | --- | --- |
//! | execute: read from primaries | 1 |
//! | lock what is written, with a look at its version behind the lock | 1 |
//! | validate what was only read, if there is any: after all locks, as OCC demands | 1 |
//! | log: backups | 1 |
//! | commit: primaries, and unlock them | 1 |
//!
//! What is different from the paper is what is different in FaRM's preset; and the commit is waited for, as `ford.txt` counts it:
//! a transaction counts as committed when all copies have it.

use super::{Locking, Protocol};

pub(super) const DRTM_H: Protocol =
    Protocol { name: "drtm-h", locking: Locking::WithValidation, ..super::farm::FARM };
