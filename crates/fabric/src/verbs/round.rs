//! A round: doorbells to one or several nodes, rung together.

use std::ptr::NonNull;

use super::counters::{Phase, Tally};
use super::ringing::{Passive, Ringing};
use super::slot::{Bell, Slot};
use super::slots::Held;
use super::{Doorbell, Queue};
use crate::FabricError;
use crate::link::Posted;
use crate::runtime::Worker;

/// Doorbells to one or several nodes that are posted together and awaited as one round trip.
///
/// ```
/// # use farside_fabric::{NodeId, Result, Worker, local};
/// # fn main() -> Result<()> {
/// # let cluster = local::Cluster::new(2, 4096)?;
/// # let worker = Worker::new(1);
/// # let client = cluster.client();
/// # let primary = client.connect(&worker, NodeId(0))?;
/// # let backup = client.connect(&worker, NodeId(1))?;
/// # worker.block_on(async {
/// let mut round = worker.round();
/// round.to(&primary).write(64, &[7, 8]);
/// round.to(&backup).write(64, &[7, 8]);
/// let copy = round.to(&backup).read(64, 16);
/// let done = round.ring().await?;
/// assert_eq!(done[copy], [7, 8]);
/// # Ok(()) }) }
/// ```
#[derive(Debug)]
#[must_use = "a round that is not rung does nothing"]
pub struct Round<'w> {
    held: Held<'w>,
}

impl<'w> Round<'w> {
    #[inline(always)]
    pub(crate) fn new(worker: &'w Worker) -> Self {
        Round { held: worker.slots().take() }
    }

    /// Counts this round's verbs in `tally`, under `phase`.
    #[inline]
    pub fn counted(mut self, tally: &'w Tally, phase: Phase) -> Self {
        let slot = self.slot();
        slot.tally = Some((NonNull::from(tally), phase));
        slot.special = true;
        self
    }

    /// The doorbell to a node: verbs added to it follow those that were added before.
    #[inline(always)]
    pub fn to(&mut self, queue: &'w Queue) -> Doorbell<'_> {
        Doorbell::new(self.slot(), queue)
    }

    /// Posts all doorbells at once; await the result to have them completed.
    ///
    /// The verbs are posted now, not when the result is first polled. Dropping it lets them take
    /// effect unobserved.
    #[inline(always)]
    pub fn ring(self) -> Ringing<'w> {
        self.launch(true)
    }

    /// Posts all doorbells without asking for their completion: a later round that completes on the
    /// same queues acknowledges them.
    #[inline(always)]
    pub fn post(self) -> Passive<'w> {
        Passive::new(self.launch(false))
    }

    #[inline(always)]
    fn launch(self, signaled: bool) -> Ringing<'w> {
        let mut held = self.held;
        std::mem::forget(self); // the slot goes on
        held.signaled = signaled;
        if !held.special || prepare(&mut held) {
            post(&mut held);
        }
        Ringing::new(held)
    }

    #[inline(always)]
    fn slot(&mut self) -> &mut Slot {
        &mut self.held
    }
}

/// Refuses the round, or counts it; whether to post it.
#[inline(never)]
fn prepare(slot: &mut Slot) -> bool {
    if let Some(refusal) = slot.refusal {
        slot.refuse(refusal);
        return false;
    }
    if let Some((tally, phase)) = slot.tally {
        // SAFETY: the round borrows the tally, and is being rung just now.
        unsafe { tally.as_ref() }.count(phase, slot);
    }
    true
}

/// Posts every doorbell of the round.
#[inline]
fn post(slot: &mut Slot) {
    let mut number = 0;
    while let Some(bell) = slot.bells.get(number) {
        let queue = bell.queue();
        if queue.broken.get() {
            crate::probe!("posted on a broken queue");
            slot.fail(number, FabricError::Broken(queue.node));
        } else {
            match queue.link.post(Bell { slot, number }) {
                Posted::Done => {}
                Posted::Pending => slot.sent(number),
                Posted::Failed(error) => slot.fail(number, *error),
            }
        }
        number += 1;
    }
}

impl Drop for Round<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.held.give_back();
    }
}
