//! Backend `shm`: memory nodes as mappings that several processes share.
//!
//! A node is a [`Segment`]: a memfd, a file, or a device such as `/dev/dax0.0`. No server process is
//! needed for verbs: every process maps the segment and executes its own verbs on it, word by word.
//! In front of the data a segment has a control area (`layout`) with the processes that are attached
//! and a mailbox for calls, which one of the attached
//! processes may [serve](Client::serve).
//!
//! **Fencing** kills: a process that can store to the mapping can only be stopped for good by
//! ending it. The fence looks the process up in the control area, opens a pidfd, makes sure by its
//! start time that this is still the same process, kills it, and waits until the kernel confirms.
//!
//! **What a dead process leaves behind**: perhaps half a WRITE (C3), its entry among the processes
//! and a mailbox slot, both of which the living find and reuse.

mod client;
mod layout;
mod link;
mod mailbox;
mod process;
mod registry;
mod segment;
mod server;
mod syncer;

pub use client::Client;
pub use segment::Segment;
pub use server::Server;
