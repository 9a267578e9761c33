//! What will happen, and when.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// How often the adversary looks for machines to strike, in picoseconds.
pub(crate) const LOOK: u64 = 20_000_000;

/// Something that happens at a point in virtual time. The numbers are indices into the world.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Event {
    /// A doorbell reaches its node.
    Arrive(u32),
    /// A part of a doorbell takes effect.
    Effect(u32, u32),
    /// A doorbell's completion reaches its thread.
    Complete(u32),
    /// A thread has work.
    Run(u32),
    /// A timer of a thread may be due.
    Timer(u32),
    /// A control message reaches its node, or its answer the caller.
    Control(u32),
    /// The adversary looks around.
    Look,
    /// A paused process goes on.
    Resume(u32),
    /// A paused node goes on.
    NodeResume(u32),
    /// A dead node comes back.
    NodeRestart(u32),
    /// A partition heals: process and node.
    Heal(u32, u32),
}

/// Events by time; those of the same time in the order they were made.
#[derive(Debug, Default)]
pub(crate) struct Agenda {
    heap: BinaryHeap<Reverse<(u64, u64, Event)>>,
    made: u64,
}

impl Agenda {
    #[inline]
    pub(crate) fn push(&mut self, at: u64, event: Event) {
        self.made += 1;
        self.heap.push(Reverse((at, self.made, event)));
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<(u64, Event)> {
        self.heap.pop().map(|Reverse((at, _, event))| (at, event))
    }

    pub(crate) fn clear(&mut self) {
        self.heap.clear();
    }
}
