//! A slot holds one round from its first verb to the moment its results are dropped.
//!
//! Every round passes through one, so its fields are laid out for the common case: few verbs, one to
//! three nodes, all well. Buffers are kept from round to round and written in place.

use std::ptr::NonNull;
use std::rc::Rc;
use std::slice;
use std::task::Waker;

use super::counters::{Phase, Tally};
use super::doorbell::RoundMark;
use super::queue::QueueState;
use super::slots::{Slots, Token};
use super::{MAX_ROUND_BYTES, MAX_ROUND_NODES};
use crate::memory::WORD;
use crate::{FabricError, Refusal, Result};

/// A slot may keep a buffer of up to so many bytes.
const SMALL_BUFFER_BYTES: usize = 16 << 10;

/// The first slots may keep larger ones. There are many slots only where many small rounds are in
/// flight at once; a few large ones at a time need no allocation either.
const LARGE_BUFFERS: u32 = 16;

/// What a verb does. Its operands and results stand in the words of the slot, in this layout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    /// READ: the words that were read.
    Read,
    /// WRITE: the words to write.
    Write,
    /// CAS: expected (then: the old value), desired.
    Cas,
    /// FAA: the addend (then: the old value).
    Faa,
    /// Masked CAS: expected (then: the old value), desired, compare mask, swap mask.
    MaskedCas,
    /// FLUSH: no words.
    Flush,
}

impl Op {
    /// How many there are.
    pub(super) const KINDS: usize = 6;
}

/// One verb of a doorbell.
#[derive(Clone, Copy, Debug)]
pub struct Verb {
    /// The byte address in the node's memory.
    pub at: u64,
    /// What it does.
    pub op: Op,
    /// Whether it waits for READs and atomics before it ([C1](crate::contracts#c1-order)).
    pub fenced: bool,
}

/// What stands before the words of a verb in the slot's script: this word, then the address.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heading(u64);

impl Heading {
    const WORDS: usize = 2;
    const FENCED: u64 = 1 << 8;

    #[inline(always)]
    pub(super) fn of_bell(bell: usize) -> Self {
        Heading((bell as u64) << 16)
    }

    #[inline(always)]
    pub(super) fn verb(self, op: Op, words: usize) -> Self {
        Heading(self.0 | op as u64 | (words as u64) << 32)
    }

    #[inline(always)]
    pub(super) fn fenced(self) -> Self {
        Heading(self.0 | Self::FENCED)
    }

    #[inline(always)]
    fn op(self) -> Op {
        match self.0 as u8 {
            0 => Op::Read,
            1 => Op::Write,
            2 => Op::Cas,
            3 => Op::Faa,
            4 => Op::MaskedCas,
            5 => Op::Flush,
            // SAFETY: a heading is made by `verb` alone, from an Op.
            _ => unsafe { std::hint::unreachable_unchecked() },
        }
    }

    #[inline(always)]
    fn is_fenced(self) -> bool {
        self.0 & Self::FENCED != 0
    }

    #[inline(always)]
    fn bell(self) -> usize {
        usize::from((self.0 >> 16) as u16)
    }

    #[inline(always)]
    fn is_of(self, bell: usize) -> bool {
        (self.0 ^ (bell as u64) << 16) & 0xffff_0000 == 0
    }

    #[inline(always)]
    fn words(self) -> usize {
        (self.0 >> 32) as usize
    }
}

/// A doorbell within the slot: the verbs to one node.
#[derive(Debug)]
pub(super) struct BellState {
    /// Borrowed by the round, and kept alive by `Slot::kept` once the doorbell is in flight.
    queue: NonNull<QueueState>,
    /// False while it is in flight.
    pub(super) completed: bool,
}

#[derive(Debug)]
pub(crate) struct Slot {
    /// The verbs of all doorbells in the order they were added, each a heading followed by its
    /// words. Grows to what the largest round needed, and is never cleared: `used` says how far it
    /// counts.
    script: Vec<u64>,
    used: usize,
    pub(super) bells: Vec<BellState>,
    /// Tells the tickets of this round from those of any other round of the worker.
    pub(super) round: RoundMark,
    /// Doorbells without a completion.
    pub(super) open: u32,
    pub(super) signaled: bool,
    /// Something below is set. A round that is fine and completes at once touches none of it.
    pub(super) special: bool,
    /// Nobody waits for it any more: recycle it on completion.
    pub(super) abandoned: bool,
    pub(super) waker: Option<Waker>,
    pub(super) refusal: Option<Refusal>,
    /// Who counts the round; borrowed by it.
    pub(super) tally: Option<(NonNull<Tally>, Phase)>,
    /// The queues of doorbells in flight: the round that lent them may be dropped before they land.
    kept: Vec<Rc<QueueState>>,
    /// The doorbells that failed.
    pub(super) errors: Vec<(u32, FabricError)>,
    /// The next slot in the list of free ones.
    pub(super) next_free: Option<NonNull<Slot>>,
    /// The slots of the worker, and its place among them.
    pub(super) home: NonNull<Slots>,
    index: u32,
}

impl Slot {
    pub(super) fn new(home: NonNull<Slots>, index: u32) -> Self {
        Slot {
            script: Vec::new(),
            used: 0,
            bells: Vec::new(),
            round: RoundMark::default(),
            open: 0,
            signaled: false,
            special: false,
            abandoned: false,
            waker: None,
            refusal: None,
            tally: None,
            kept: Vec::new(),
            errors: Vec::new(),
            next_free: None,
            home,
            index,
        }
    }

    /// The doorbell to this queue; a new one if there is none yet.
    #[inline]
    pub(super) fn bell(&mut self, queue: &Rc<QueueState>) -> usize {
        // From the Rc and not from a reference: it must be good for counting, see `sent`.
        let queue = NonNull::new(Rc::as_ptr(queue).cast_mut()).expect("an Rc points somewhere");
        if let Some(known) = self.bells.iter().position(|bell| bell.queue == queue) {
            return known;
        }
        if self.bells.len() == MAX_ROUND_NODES {
            self.refusal.get_or_insert(Refusal::TooManyNodes);
            self.special = true;
            return 0;
        }
        self.bells.push(BellState { queue, completed: true });
        self.bells.len() - 1
    }

    /// Appends a verb with room for `words` words; returns where that room begins, and the room.
    #[inline(always)]
    pub(super) fn push(&mut self, heading: Heading, at: u64, words: usize) -> (usize, &mut [u64]) {
        let needed = Heading::WORDS + words;
        if needed > self.script.len() - self.used {
            self.grow(words);
        }
        let start = self.used;
        self.used = start + needed;
        debug_assert!(self.used <= self.script.len());
        // SAFETY: there was room for it, or `grow` has made room: `used` never exceeds the script.
        let verb = unsafe { self.script.get_unchecked_mut(start..start + needed) };
        verb[0] = heading.0;
        verb[1] = at;
        (start + Heading::WORDS, &mut verb[Heading::WORDS..])
    }

    /// Makes room for a verb. A round that is too large is refused, and forgets what it had: the
    /// caller may go on filling it, and must not fill the memory.
    #[cold]
    fn grow(&mut self, words: usize) {
        let needed = self.used + Heading::WORDS + words;
        if needed as u64 * WORD > MAX_ROUND_BYTES {
            self.refusal.get_or_insert(Refusal::RoundTooLarge);
            self.special = true;
            self.used = 0;
        }
        let needed = self.used + Heading::WORDS + words;
        if needed > self.script.len() {
            self.script.resize(needed.next_power_of_two().max(64), 0);
            self.special |= self.script.len() * 8 > SMALL_BUFFER_BYTES;
        }
    }

    /// All verbs with their words; tickets say where.
    #[inline(always)]
    pub(super) fn script(&self) -> &[u64] {
        &self.script
    }

    /// Visits all verbs in the order they were added: the doorbell, what it does, and how many words it has.
    #[inline]
    pub(super) fn each_verb(&self, mut visit: impl FnMut(usize, Op, usize)) {
        let (script, mut at) = (&self.script[..self.used], 0);
        while let Some(heading) = script.get(at) {
            let heading = Heading(*heading);
            visit(heading.bell(), heading.op(), heading.words());
            at += Heading::WORDS + heading.words();
        }
    }

    /// How the doorbell of a verb went.
    pub(super) fn result_of(&self, first: usize) -> Result<()> {
        self.result(Heading(self.script[first - Heading::WORDS]).bell())
    }

    /// Whether some doorbell did not complete at once.
    pub(super) fn was_in_flight(&self) -> bool {
        !self.kept.is_empty()
    }

    /// Wakes `waker` when the last doorbell has completed.
    pub(super) fn wait(&mut self, waker: &Waker) {
        match &mut self.waker {
            Some(known) => known.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
    }

    /// Completes a doorbell with an error, which breaks its queue.
    #[cold]
    pub(super) fn fail(&mut self, bell: usize, error: FabricError) {
        self.bells[bell].queue().broken.set(true);
        self.errors.push((bell as u32, error));
        self.special = true;
    }

    /// Completes all doorbells with the refusal, which breaks nothing.
    #[cold]
    pub(super) fn refuse(&mut self, refusal: Refusal) {
        let refused = FabricError::Refused(refusal);
        self.errors.extend((0..self.bells.len() as u32).map(|bell| (bell, refused.clone())));
        self.special = true;
    }

    /// How a doorbell went, once it has completed.
    pub(super) fn result(&self, bell: usize) -> Result<()> {
        match self.errors.iter().find(|(failed, _)| *failed as usize == bell) {
            None => Ok(()),
            Some((_, error)) => Err(error.clone()),
        }
    }

    /// The first error among its doorbells, once all are complete.
    #[inline]
    pub(super) fn first_error(&self) -> Option<&FabricError> {
        if !self.special {
            return None;
        }
        self.errors.first().map(|(_, error)| error)
    }

    /// Makes it ready for another round.
    #[inline]
    pub(super) fn clear(&mut self) {
        debug_assert_eq!(self.open, 0);
        self.bells.clear();
        self.used = 0;
        if self.special {
            self.clear_special();
        }
    }

    #[cold]
    fn clear_special(&mut self) {
        let large = self.script.len() * 8 > SMALL_BUFFER_BYTES;
        if large && self.index >= LARGE_BUFFERS {
            self.script = Vec::new();
        }
        self.special = large && self.index < LARGE_BUFFERS;
        self.abandoned = false;
        self.waker = None;
        self.refusal = None;
        self.tally = None;
        self.errors.clear();
        self.kept.clear();
    }

    /// A doorbell is in flight: keeps its queue until the last completion has come.
    #[cold]
    pub(super) fn sent(&mut self, bell: usize) {
        self.open += 1;
        self.special = true;
        self.bells[bell].completed = false;
        let queue = self.bells[bell].queue;
        // SAFETY: the pointer comes from an Rc that the round still borrows; counting it once more
        // makes it ours to drop.
        let queue = unsafe {
            Rc::increment_strong_count(queue.as_ptr());
            Rc::from_raw(queue.as_ptr())
        };
        self.kept.push(queue);
    }
}

/// One doorbell as its backend sees it: a chain of verbs with their words.
#[derive(Debug)]
pub struct Bell<'a> {
    pub(super) slot: &'a mut Slot,
    pub(super) number: usize,
}

impl Bell<'_> {
    /// Visits the verbs in posted order, each with its words, until one fails.
    #[inline(always)]
    pub fn try_each<E>(
        &mut self,
        mut visit: impl FnMut(Verb, &mut [u64]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut next = self.slot.script.as_mut_ptr();
        // SAFETY: `used` never exceeds the script.
        let end = unsafe { next.add(self.slot.used) };
        while next < end {
            // SAFETY: up to `used` the script is a sequence of verbs as `push` appended them: a
            // heading of two words, then as many words as it says. `next` is at such a heading.
            // Slices instead of pointers would check this again and again for a quarter of the
            // instructions of a short doorbell.
            let (heading, at, words) = unsafe {
                let heading = Heading(*next);
                let words = next.add(Heading::WORDS);
                let at = *next.add(1);
                next = words.add(heading.words());
                (heading, at, slice::from_raw_parts_mut(words, heading.words()))
            };
            debug_assert!(next <= end);
            if heading.is_of(self.number) {
                visit(Verb { at, op: heading.op(), fenced: heading.is_fenced() }, words)?;
            }
        }
        Ok(())
    }

    /// Whether somebody waits for this doorbell; if not, a later one may acknowledge it.
    pub fn signaled(&self) -> bool {
        self.slot.signaled
    }

    /// The name under which a completion is reported later.
    pub fn token(&self) -> Token {
        Token { index: self.slot.index, round: self.slot.round, bell: self.number as u32 }
    }
}

impl BellState {
    #[inline]
    pub(super) fn queue<'q>(&self) -> &'q QueueState {
        // SAFETY: until it is posted, and after it has completed, the round (or what it became)
        // borrows the queue; in between `Slot::kept` has it. Callers do not keep it longer.
        unsafe { self.queue.as_ref() }
    }
}
