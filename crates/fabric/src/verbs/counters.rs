//! Counters: verbs by kind, bytes, node and the caller's phase, and round trips. Free when unused.

use std::cell::{Cell, RefCell};
use std::ops::{Add, AddAssign, Sub};

use smallvec::SmallVec;

use super::slot::{Op, Slot};
use crate::NodeId;

/// A phase of the caller's protocol, such as "lock" or "commit"; the caller names them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Phase(pub u8);

impl Phase {
    /// How many phases a [`Tally`] tells apart; higher numbers are counted in the last one.
    pub const COUNT: usize = 16;

    fn place(self) -> usize {
        usize::from(self.0).min(Self::COUNT - 1)
    }
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
}

/// The same as it is counted: by the kind of a verb, in few instructions.
#[derive(Clone, Copy, Debug, Default)]
struct Raw {
    /// Of each kind: how many, and their words.
    verbs: [(u64, u64); Op::KINDS],
    doorbells: u64,
    calls: Counts,
}

impl From<Raw> for Counts {
    fn from(raw: Raw) -> Counts {
        let of = |op: Op| raw.verbs[op as usize];
        let ((reads, read), (writes, written)) = (of(Op::Read), of(Op::Write));
        let ((cas, swapped), (masked, masked_words)) = (of(Op::Cas), of(Op::MaskedCas));
        let ((faa, added), (flushes, _)) = (of(Op::Faa), of(Op::Flush));
        let verbs = Counts {
            reads,
            writes,
            cas: cas + masked,
            faa,
            flushes,
            bytes_out: 8 * (written + swapped + masked_words + added),
            bytes_in: 8 * (read + cas + masked + faa),
            doorbells: raw.doorbells,
            ..Counts::default()
        };
        verbs + raw.calls
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
    /// By node, and by phase at each.
    nodes: RefCell<Vec<Raw>>,
    /// Of each phase: they belong to no node.
    round_trips: [Cell<u64>; Phase::COUNT],
}

impl Tally {
    /// The counts of one phase.
    pub fn phase(&self, phase: Phase) -> Counts {
        let nodes = self.nodes.borrow();
        let of_nodes = nodes.iter().skip(phase.place()).step_by(Phase::COUNT);
        let sum = of_nodes.fold(Counts::default(), |sum, raw| sum + (*raw).into());
        Counts { round_trips: self.round_trips[phase.place()].get(), ..sum }
    }

    /// The counts of one node; round trips belong to no node.
    pub fn node(&self, node: NodeId) -> Counts {
        let nodes = self.nodes.borrow();
        let phases = nodes.chunks_exact(Phase::COUNT).nth(usize::from(node.0));
        phases.into_iter().flatten().fold(Counts::default(), |sum, raw| sum + (*raw).into())
    }

    /// The counts of all phases.
    pub fn total(&self) -> Counts {
        let phases = (0..Phase::COUNT as u8).map(|phase| self.phase(Phase(phase)));
        phases.fold(Counts::default(), Add::add)
    }

    /// Counts a call, which the caller made itself.
    pub fn call(&self, phase: Phase, node: NodeId, request: &[u8], reply: &[u8]) {
        let counts = Counts {
            calls: 1,
            bytes_out: request.len() as u64,
            bytes_in: reply.len() as u64,
            ..Counts::default()
        };
        let mut nodes = self.nodes.borrow_mut();
        let at = place(&mut nodes, node, phase);
        nodes[at].calls += counts;
        let trips = &self.round_trips[phase.place()];
        trips.set(trips.get() + 1);
    }

    /// Starts again from zero.
    pub fn reset(&self) {
        self.round_trips.iter().for_each(|trips| trips.set(0));
        self.nodes.borrow_mut().clear();
    }

    /// Every verb is looked at once: this is done for each round of a transaction.
    pub(super) fn count(&self, phase: Phase, slot: &Slot) {
        let mut nodes = self.nodes.borrow_mut();
        let mut of_bells = SmallVec::<[usize; 8]>::new();
        for bell in &slot.bells {
            let at = place(&mut nodes, bell.queue().node, phase);
            nodes[at].doorbells += 1;
            of_bells.push(at);
        }
        let (nodes, of_bells) = (&mut nodes[..], &of_bells[..]);
        slot.each_verb(|bell, op, words| {
            let kind = &mut nodes[of_bells[bell]].verbs[op as usize];
            kind.0 += 1;
            kind.1 += words as u64;
        });
        let trips = &self.round_trips[phase.place()];
        trips.set(trips.get() + u64::from(slot.signaled));
    }
}

/// Where the counts of a phase at a node are; there is room for them.
#[inline]
fn place(nodes: &mut Vec<Raw>, node: NodeId, phase: Phase) -> usize {
    let at = usize::from(node.0) * Phase::COUNT + phase.place();
    if nodes.len() <= at {
        nodes.resize((usize::from(node.0) + 1) * Phase::COUNT, Raw::default());
    }
    at
}
