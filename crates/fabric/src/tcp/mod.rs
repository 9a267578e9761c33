//! Backend `tcp`: memory nodes on any network.
//!
//! A [`Node`] is one thread that owns memory and executes the frames of its connections, one after the
//! other: verbs of different clients never overlap, so lines (and whole verbs) are atomic. A client
//! thread has one connection to each node. Doorbells are frames; those that are posted while the
//! thread runs its tasks leave with one `send`, and whatever answers are there come in with one
//! `recv`.
//!
//! **Fencing**: the node drops the connections of the fenced client and refuses new ones.
//! **Reconnecting**: the new connection names the old one, which the node drops first, with all of its
//! frames that were not executed. **Trust**: a node listens on loopback unless told otherwise. With a
//! [`Secret`], client and node prove to each other that they know it before anything else happens
//! (HMAC-SHA256 over both sides' random numbers). With [`NodeTls`] and [`ClientTls`] the connection is
//! encrypted, and the node shows a certificate.

mod auth;
mod client;
mod handshake;
mod link;
mod node;
mod stream;
mod tls;
mod wire;

pub use auth::Secret;
pub use client::{Client, Options};
pub use farside_journal::Report as Recovery;
pub use node::{Node, NodeEvent, NodeOptions, Stop};

pub(crate) use client::{Connected, LOOK, Place, Shared, aside};
pub(crate) use link::TcpLink;
pub(crate) use node::SideDoor;
pub use tls::{ClientTls, NodeTls};
pub use wire::{PROTOCOL_VERSION, decode_for_fuzzing};
