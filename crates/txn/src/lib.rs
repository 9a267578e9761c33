//! # farside-txn: transactions over objects at addresses
//!
//! An object has a lock, the commit time of its body, and a pointer to its previous version; it is on every
//! replica of its region at the same offset. This crate reads objects in snapshots and changes several of
//! them at once, strictly serializable and opaque (C7), with one-sided verbs alone.
//!
//! | room | what is in it |
//! | --- | --- |
//! | [`clock`] | time with its uncertainty |
//! | `words` | lock words and checksums |
//! | [`object`], [`record`] | the layouts of objects and of undo records, which are their old versions |
//! | [`Blob`] | bodies that are too large for an object |
//! | [`system`] | what is in far memory that is not an object |
//! | `ring`, [`OldVersions`] | where a thread keeps its records, and how many of them |
//! | `space` | where objects come from and go to |
//! | `turns` | who within a process may ask for a lock next |
//! | `horizon` | which snapshots are still read, and which addresses are still used |
//! | [`Level`] | what a transaction is promised |
//! | `snapshots`, `early` | the snapshots that a thread reads, and those that need not be waited for |
//! | `watch`, `repair` | who lives, and what the dead leave behind |
//! | `copy` | copies of regions, made while transactions go on |
//! | [`Scrub`] | flaws of objects, found before anybody needs them |
//! | [`Session`], `place` | what the threads of a process share |
//! | [`Agent`], `reach` | a thread of a session, and how it reaches the nodes |
//! | [`Txn`] | a transaction; `execute`, `reader`, `locking`, `validate`, `log`, `install` and `release` are its phases, `commit` their order |
//! | [`protocol`] | which technique each phase uses: presets of the papers |
//! | `versions`, `far_versions` | a version cache, in the memory of the compute node, or at a node of its own |
//!
//! | round trips | |
//! | --- | --- |
//! | execute | 1 for each step whose keys are known together |
//! | validate | 1 if there are keys that are only read, and others are written |
//! | install | 1 if anything is written |
//! | release | none that anybody waits for |

mod agent;
mod blob;
pub mod clock;
mod commit;
mod copy;
mod early;
mod entry;
mod error;
mod execute;
mod far_versions;
mod holding;
mod horizon;
mod install;
mod level;
mod locking;
mod log;
mod noted;
pub mod object;
mod old;
mod place;
pub mod protocol;
mod queues;
mod reach;
mod reader;
pub mod record;
mod release;
mod repair;
mod ring;
mod scrub;
mod session;
mod snapshots;
mod space;
pub mod system;
mod trap;
mod turns;
mod txn;
mod validate;
mod versions;
mod watch;
mod words;

pub use agent::{Agent, Parts};
pub use blob::Blob;
pub use error::{TxnError, Why};
pub use holding::Holding;
pub use level::Level;
pub use object::{Target, Version};
pub use old::OldVersions;
pub use protocol::{Protocol, Technique, Versions};
pub use scrub::{Flaw, Names, Scrub, Scrubbed, Wrong};
pub use session::{Identity, Limits, Session};
pub use trap::Trap;
pub use txn::{Access, Effort, Mode, Txn};
pub use versions::VersionCache;

use farside_fabric::Phase;

/// Locks and reads.
pub const EXECUTE: Phase = Phase(1);
/// Reads again what was only read.
pub const VALIDATE: Phase = Phase(2);
/// Writes records and bodies.
pub const INSTALL: Phase = Phase(3);
/// Gives locks back.
pub const RELEASE: Phase = Phase(4);
/// Tells which snapshots are read.
pub const HORIZON: Phase = Phase(5);
/// Writes bodies that are too large for an object.
pub const BLOB: Phase = Phase(6);
/// Looks after the heap.
pub const SPACE: Phase = Phase(7);
/// Writes records ahead of time.
pub const LOG: Phase = Phase(9);
/// Looks at what nobody needs.
pub const SCRUB: Phase = Phase(8);
