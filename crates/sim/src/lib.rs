//! # farside-sim: a deterministic world of one-sided memory
//!
//! Compute machines, memory nodes, NICs, wires and clocks in one thread and in virtual time. Code
//! above the fabric cannot tell it from `shm` or `tcp`: it gets a [`Worker`](farside_fabric::Worker)
//! and queues. Everything, the faults too, derives from one seed: same seed, same run, bit for bit,
//! which the [digest](Sim::digest) shows.
//!
//! ```
//! use farside_sim::{Faults, Profile, Sim};
//!
//! let sim = Sim::new(Profile::named("connectx-5").unwrap(), 42, Faults::none());
//! let node = sim.add_node(1 << 20);
//! let process = sim.add_process();
//! let worker = sim.add_thread(process);
//! let queue = sim.connect(process, &worker, node).unwrap();
//! worker.block_on(async {
//!     let mut round = worker.round();
//!     round.to(&queue).write(0, &[7]);
//!     let back = round.to(&queue).read(0, 8);
//!     assert_eq!(round.ring().await.unwrap()[back], [7]);
//! });
//! println!("took {} ns of virtual time", worker.now().0);
//! ```
//!
//! # The fault model
//!
//! What may happen, where a fault of that kind is switched on ([`FaultKind`]), and what never does:
//!
//! | thing | may | never |
//! | --- | --- | --- |
//! | a READ or atomic | take effect long after it arrived, so that later verbs which C1 does not order overtake it | overtake what C1 orders before it |
//! | a multi-word READ or WRITE | take effect word by word, in any order, with other queues' verbs between | tear a word; tear a line where lines are atomic |
//! | a doorbell | be under way for long; land just before a fence; fail with any prefix of its effects | be doubled; overtake another of its queue |
//! | a process | stop for a while, or die; what it had in flight lands up to a point of each queue, perhaps in the middle of a WRITE | change memory after a fence returned |
//! | a memory node | stop for a while, die, come back empty (or, persistent, as what was flushed and parts of what was not) | come back with its old queues |
//! | the network | be cut between two machines: what is under way is lost, before or after its effect | lose a message and go on |
//! | unflushed writes | survive power loss in part: any words (unordered), or a prefix (ordered) | be lost after a completed FLUSH |
//! | clocks | differ by an offset and drift | go back |

mod adversary;
mod busy;
mod control;
mod delivery;
mod digest;
mod effects;
mod event;
mod faults;
mod flight;
mod link;
pub mod litmus;
mod nic;
mod node;
mod process;
mod profile;
mod runtime;
mod sim;
mod trace;
mod world;

pub use adversary::{FaultKind, Faults};
pub use busy::Busy;
pub use process::{Code, Landing, ProcessId};
pub use profile::{Cpu, Medium, Profile};
pub use sim::{ClockModel, Sim};
