//! Rounds of verbs: built, rung, awaited, read.
//!
//! A [`Round`] is built by one task, posted by [`Round::ring`], and becomes a [`Done`] once all its
//! doorbells have completed. Only a `Done` can be asked for what a READ, CAS or FAA returned, so the
//! compiler keeps anyone from looking too early. The bytes live in a slot that the worker owns and
//! reuses: no verb allocates once the slots are warm, and a round that is dropped half-way leaves
//! its slot to the worker until the last completion has arrived.

mod counters;
mod done;
mod doorbell;
mod queue;
mod ringing;
mod round;
mod slot;
mod slots;

pub use counters::{Counts, Phase, Tally};
pub use done::{Done, Outcomes};
pub use doorbell::{Doorbell, MaskedCas, Ticket, Word, Words};
pub use queue::Queue;
pub(crate) use queue::{MAX_CALL_BYTES, QueueState};
pub use ringing::{Passive, Ringing};
pub use round::Round;
pub use slot::{Bell, Op, Verb};
pub(crate) use slots::Slots;
pub use slots::{Completer, Token};

/// The most bytes one READ or WRITE may move.
pub const MAX_VERB_BYTES: u64 = 4 << 20;

/// The most bytes one round may hold: what its verbs move, and 16 bytes for each of them.
pub const MAX_ROUND_BYTES: u64 = 64 << 20;

/// The most nodes one round may reach.
pub const MAX_ROUND_NODES: usize = 1 << 12;
