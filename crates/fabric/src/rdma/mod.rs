//! Backend `rdma`: memory nodes behind RDMA NICs.
//!
//! Every queue is a reliable connection (RC) of two queue pairs. A doorbell is one chain of work
//! requests and one post; only its last is signaled; the node's CPU has no part in it. The queue pairs
//! are introduced to each other over a [`tcp`](crate::tcp) connection, which stays: it carries calls and
//! fences, its secret and TLS decide who may connect, and the node keeps a queue pair exactly as long as
//! its connection. Connection lost, client fenced or replaced: the node destroys the pair, after which
//! nothing that was in flight can take effect.
//!
//! `libibverbs` is loaded when the first device is opened, so that one program starts on machines with
//! and without it. Only calls of the upstream library are used, none of a vendor's.
//!
//! | room | what is in it |
//! | --- | --- |
//! | `ffi` | the parts of libibverbs that are used, as its ABI has them |
//! | `device` | finding a device, a port and an address; each failing step says what to do |
//! | `region` | registered memory |
//! | `pair` | queue pairs, and what both sides tell each other about theirs |
//! | `chain` | a doorbell as work requests, within the room that there is |
//! | `link` | the queue: posting, completions, errors |
//! | `client`, `node` | both ends |

mod chain;
mod client;
mod device;
mod ffi;
mod link;
mod node;
mod pair;
mod region;

pub use client::Client;
pub use device::{Check, Options, checks};
pub use node::open_node;
