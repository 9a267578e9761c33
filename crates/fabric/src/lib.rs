//! # farside-fabric: one-sided verbs on far memory
//!
//! Far memory is an array of 8-byte words that lives in *memory nodes*. A compute thread owns a
//! [`Worker`] and, through it, one [`Queue`] per memory node. It builds a [`Round`]: ordered
//! *doorbells* of verbs (READ, WRITE, CAS, FAA, FLUSH) to one or several nodes, rings them all at
//! once, and awaits them as one round trip.
//!
//! ```
//! use farside_fabric::{NodeId, Result, Worker, local};
//!
//! # fn main() -> Result<()> {
//! let cluster = local::Cluster::new(1, 1 << 20)?;
//! let worker = Worker::new(1);
//! worker.block_on(async {
//!     let node = cluster.client().connect(&worker, NodeId(0))?;
//!
//!     let mut round = worker.round();
//!     let lock = round.to(&node).cas(0, 0, 42); //  take the lock …
//!     let body = round.to(&node).read(8, 16); //    … and read behind it: one round trip
//!     let done = round.ring().await?;
//!     assert_eq!(done[lock], 0); // the old value: the lock was free
//!     assert_eq!(done[body], [0, 0]);
//!     Ok(())
//! })
//! # }
//! ```
//!
//! Nothing above this crate knows which backend it runs on. What every backend promises, and all
//! that it promises, are the [`contracts`] C1–C6; what differs is asked for with
//! [`Queue::capabilities`], never assumed.
//!
//! | room | what is in it |
//! | --- | --- |
//! | [`contracts`] | the memory model everything above relies on |
//! | `verbs` | rounds, doorbells, tickets, completions, counters |
//! | [`runtime`] | a task per coordinator, timers, randomness; what the simulator may own |
//! | `memory` | words of memory, and verbs executed on them |
//! | [`local`] | backend: memory of this process |
//! | [`shm`] | backend: a mapping shared between processes |
//! | [`tcp`] | backend: memory nodes on any network, and the node itself |
//! | [`rdma`] | backend: memory nodes behind RDMA NICs |

mod clock;
pub mod contracts;
mod error;
mod ids;
pub mod link;
pub mod local;
pub mod memory;
pub mod probe;
#[cfg(not(loom))]
pub mod rdma;
pub mod runtime;
mod services;
pub mod shm;
mod sync;
pub mod tcp;
mod verbs;

pub use clock::Told;
pub use error::{FabricError, Refusal, Result};
pub use ids::{ClientId, NodeId};
pub use link::{Capabilities, Persistence};
pub use runtime::{Time, Worker};
pub use services::{Handler, Services, TIME};
pub use verbs::{
    Counts, Done, Doorbell, MAX_ROUND_BYTES, MAX_ROUND_NODES, MAX_VERB_BYTES, MaskedCas, Outcomes,
    Passive, Phase, Queue, Ringing, Round, Tally, Ticket, Word, Words,
};

/// The examples of the documentation are tests, too.
#[cfg(doctest)]
mod documentation {
    #[doc = include_str!("../../../docs/toy-protocol.md")]
    struct ToyProtocol;
}
