//! Counters: verbs by kind, bytes, node and the caller's phase, and round trips. Free when unused.

use std::cell::{Cell, RefCell};
use std::ops::{Add, AddAssign, Sub};

use super::slot::{Bell, Op, Slot};
use crate::NodeId;

/// A phase of the caller's protocol, such as "lock" or "commit"; the caller names them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Phase(pub u8);

impl Phase {
    /// How many phases a [`Tally`] tells apart; higher numbers are counted in the last one.
    pub const COUNT: usize = 16;
}

/// Sums over verbs. Bytes are payload: operands and results, no headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[expect(missing_docs, reason = "the fields are named after the verbs")]
pub struct Counts {
    pub reads: u64,
    pub writes: u64,
    pub cas: u64,
    pub faa: u64,
    pub flushes: u64,
    pub calls: u64,
    pub bytes_out: u64,
    pub bytes_in: u64,
    /// Doorbells rung, one per node and round.
    pub doorbells: u64,
    /// Rounds awaited; calls too. A round that is only posted costs none.
    pub round_trips: u64,
}

impl Counts {
    /// All verbs, calls not included.
    pub fn verbs(&self) -> u64 {
        self.reads + self.writes + self.cas + self.faa + self.flushes
    }

    fn verb(&mut self, op: Op, words: usize) {
        let (count, out, back) = match op {
            Op::Read => (&mut self.reads, 0, words),
            Op::Write => (&mut self.writes, words, 0),
            Op::Cas | Op::MaskedCas => (&mut self.cas, words, 1),
            Op::Faa => (&mut self.faa, words, 1),
            Op::Flush => (&mut self.flushes, 0, 0),
        };
        *count += 1;
        self.bytes_out += out as u64 * 8;
        self.bytes_in += back as u64 * 8;
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.reads += other.reads;
        self.writes += other.writes;
        self.cas += other.cas;
        self.faa += other.faa;
        self.flushes += other.flushes;
        self.calls += other.calls;
        self.bytes_out += other.bytes_out;
        self.bytes_in += other.bytes_in;
        self.doorbells += other.doorbells;
        self.round_trips += other.round_trips;
    }
}

impl Sub for Counts {
    type Output = Counts;

    fn sub(self, less: Counts) -> Counts {
        Counts {
            reads: self.reads - less.reads,
            writes: self.writes - less.writes,
            cas: self.cas - less.cas,
            faa: self.faa - less.faa,
            flushes: self.flushes - less.flushes,
            calls: self.calls - less.calls,
            bytes_out: self.bytes_out - less.bytes_out,
            bytes_in: self.bytes_in - less.bytes_in,
            doorbells: self.doorbells - less.doorbells,
            round_trips: self.round_trips - less.round_trips,
        }
    }
}

impl Add for Counts {
    type Output = Counts;

    fn add(mut self, other: Counts) -> Counts {
        self += other;
        self
    }
}

/// Counts the rounds that were made [`counted`](super::Round::counted) with it.
///
/// ```
/// # use farside_fabric::{NodeId, Phase, Result, Tally, Worker, local};
/// # fn main() -> Result<()> {
/// # let cluster = local::Cluster::new(1, 4096)?;
/// # let worker = Worker::new(1);
/// # let node = cluster.client().connect(&worker, NodeId(0))?;
/// # worker.block_on(async {
/// const LOCK: Phase = Phase(1);
/// let tally = Tally::default();
/// let mut round = worker.round().counted(&tally, LOCK);
/// round.to(&node).cas(0, 0, 1);
/// round.to(&node).read(8, 64);
/// round.ring().await?;
/// let counts = tally.phase(LOCK);
/// assert_eq!((counts.round_trips, counts.cas, counts.reads), (1, 1, 1));
/// assert_eq!((counts.bytes_out, counts.bytes_in), (16, 8 + 64));
/// # Ok(()) }) }
/// ```
#[derive(Debug, Default)]
pub struct Tally {
    phases: [Cell<Counts>; Phase::COUNT],
    nodes: RefCell<Vec<Counts>>,
}

impl Tally {
    /// The counts of one phase.
    pub fn phase(&self, phase: Phase) -> Counts {
        self.cell(phase).get()
    }

    /// The counts of one node; round trips belong to no node.
    pub fn node(&self, node: NodeId) -> Counts {
        let nodes = self.nodes.borrow();
        nodes.get(node.0 as usize).copied().unwrap_or_default()
    }

    /// The counts of all phases.
    pub fn total(&self) -> Counts {
        let sum = |sum, phase: &Cell<Counts>| sum + phase.get();
        self.phases.iter().fold(Counts::default(), sum)
    }

    /// Counts a call, which the caller made itself.
    pub fn call(&self, phase: Phase, node: NodeId, request: &[u8], reply: &[u8]) {
        let counts = Counts {
            calls: 1,
            bytes_out: request.len() as u64,
            bytes_in: reply.len() as u64,
            ..Counts::default()
        };
        self.add_node(node, counts);
        self.add_phase(phase, Counts { round_trips: 1, ..counts });
    }

    /// Starts again from zero.
    pub fn reset(&self) {
        self.phases.iter().for_each(|p| p.set(Counts::default()));
        self.nodes.borrow_mut().clear();
    }

    pub(super) fn count(&self, phase: Phase, slot: &mut Slot) {
        let mut round = Counts { round_trips: u64::from(slot.signaled), ..Counts::default() };
        for number in 0..slot.bells.len() {
            let node = slot.bells[number].queue().node;
            let mut counts = Counts { doorbells: 1, ..Counts::default() };
            let mut bell = Bell { slot, number };
            let Ok(()) = bell.try_each(|verb, words| {
                counts.verb(verb.op, words.len());
                Ok::<(), std::convert::Infallible>(())
            });
            self.add_node(node, counts);
            round += counts;
        }
        self.add_phase(phase, round);
    }

    fn cell(&self, phase: Phase) -> &Cell<Counts> {
        &self.phases[(phase.0 as usize).min(Phase::COUNT - 1)]
    }

    fn add_phase(&self, phase: Phase, counts: Counts) {
        let cell = self.cell(phase);
        cell.set(cell.get() + counts);
    }

    fn add_node(&self, node: NodeId, counts: Counts) {
        let mut nodes = self.nodes.borrow_mut();
        let at = node.0 as usize;
        if nodes.len() <= at {
            nodes.resize(at + 1, Counts::default());
        }
        nodes[at] += counts;
    }
}
