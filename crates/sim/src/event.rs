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
    /// A connection of a queue fails.
    Break(u32, u32),
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

impl Event {
    /// For the digest.
    pub(crate) fn code(self) -> u64 {
        let (kind, first, second) = match self {
            Event::Arrive(flight) => (1, flight, 0),
            Event::Effect(flight, part) => (2, flight, part),
            Event::Complete(flight) => (3, flight, 0),
            Event::Run(thread) => (4, thread, 0),
            Event::Timer(thread) => (5, thread, 0),
            Event::Control(message) => (6, message, 0),
            Event::Look => (7, 0, 0),
            Event::Break(queue, connection) => (8, queue, connection),
            Event::Resume(process) => (9, process, 0),
            Event::NodeResume(node) => (10, node, 0),
            Event::NodeRestart(node) => (11, node, 0),
            Event::Heal(process, node) => (12, process, node),
        };
        kind | u64::from(first) << 8 | u64::from(second) << 40
    }
}

impl Agenda {
    pub(crate) fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

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
