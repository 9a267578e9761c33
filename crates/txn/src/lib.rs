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
//! | `ring` | where a thread keeps its records |
//! | [`Turns`] | who within a process may ask for a lock next |
//! | `horizon` | which snapshots are still read |
//! | [`Agent`] | a thread of a session, with its queues |
//! | [`Txn`] | a transaction; `execute`, `reader` and `commit` are its phases |
//!
//! | round trips | |
//! | --- | --- |
//! | execute | 1 for each step whose keys are known together |
//! | validate | 1 if there are keys that are only read, and others are written |
//! | install | 1 if anything is written |
//! | release | none that anybody waits for |

mod agent;
pub mod clock;
mod commit;
mod error;
mod execute;
mod horizon;
pub mod object;
mod reader;
pub mod record;
mod ring;
mod trap;
mod turns;
mod txn;
mod words;

pub use agent::{Agent, Layout, Parts};
pub use error::{TxnError, Why};
pub use object::Target;
pub use trap::Trap;
pub use turns::Turns;
pub use txn::{Access, Txn};

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
