//! A slot holds one round from its first verb to the moment its results are dropped.
//!
//! Every round passes through one, so its fields are laid out for the common case: few verbs, one to
//! three nodes, all well. Buffers are kept from round to round and written in place.

use std::ptr::NonNull;
use std::rc::Rc;
use std::task::Waker;

use super::counters::{Phase, Tally};
use super::slots::{Slots, Token};
use super::queue::QueueState;
use crate::{FabricError, Refusal, Result};

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

/// One verb of a round.
#[derive(Clone, Copy, Debug)]
pub struct Verb {
    /// The byte address in the node's memory.
    pub at: u64,
    first_word: u32,
    words: u32,
    bell: u32,
    /// What it does.
    pub op: Op,
    /// Whether it waits for READs and atomics before it ([C1](crate::contracts#c1-order)).
    pub fenced: bool,
}

/// A doorbell within the slot: the verbs to one node.
#[derive(Debug)]
pub(super) struct BellState {
    /// Borrowed by the round, and kept alive by `Slot::kept` once the doorbell is in flight.
    queue: NonNull<QueueState>,
    /// Reported by the backend, where it did not complete at once.
    pub(super) completed: bool,
}

#[derive(Debug)]
pub(crate) struct Slot {
    pub(super) verbs: Vec<Verb>,
    /// Grows to what the largest round needed, and is never cleared: `used` says how far it counts.
    words: Vec<u64>,
    used: usize,
    pub(super) bells: Vec<BellState>,
    /// Tells the tickets of this round from those of any other round of the worker.
    pub(super) round: u32,
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
            verbs: Vec::new(),
            words: Vec::new(),
            used: 0,
            bells: Vec::new(),
            round: 0,
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
        let queue = NonNull::from(&**queue);
        if let Some(known) = self.bells.iter().position(|bell| bell.queue == queue) {
            return known;
        }
        self.bells.push(BellState {
            queue,
            completed: false,
        });
        self.bells.len() - 1
    }

    /// Appends a verb with room for `words` words; returns its number and that room.
    #[inline]
    pub(super) fn push(
        &mut self,
        bell: usize,
        op: Op,
        fenced: bool,
        at: u64,
        words: usize,
    ) -> (u32, &mut [u64]) {
        let number = self.verbs.len() as u32;
        let (first, end) = (self.used, self.used + words);
        if end > self.words.len() {
            self.grow(end);
        }
        self.used = end;
        self.verbs.push(Verb {
            at,
            first_word: first as u32,
            words: words as u32,
            bell: bell as u32,
            op,
            fenced,
        });
        (number, &mut self.words[first..end])
    }

    #[cold]
    fn grow(&mut self, words: usize) {
        self.words.resize(words.next_power_of_two(), 0);
    }

    #[inline]
    pub(super) fn words_of(&self, verb: u32) -> &[u64] {
        let verb = &self.verbs[verb as usize];
        let first = verb.first_word as usize;
        &self.words[first..first + verb.words as usize]
    }

    /// How the doorbell of a verb went.
    pub(super) fn result_of(&self, verb: u32) -> Result<()> {
        self.result(self.verbs[verb as usize].bell as usize)
    }

    /// Wakes `waker` when the last doorbell has completed.
    pub(super) fn wait(&mut self, waker: &Waker) {
        self.special = true;
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

    /// Frees the room of a round that is refused, and that somebody goes on filling.
    #[cold]
    pub(super) fn forget_verbs(&mut self) {
        debug_assert!(self.refusal.is_some());
        self.verbs.clear();
        self.used = 0;
    }

    /// Makes it ready for another round.
    #[inline]
    pub(super) fn clear(&mut self) {
        debug_assert_eq!(self.open, 0);
        self.verbs.clear();
        self.bells.clear();
        self.used = 0;
        if self.special {
            self.clear_special();
        }
    }

    #[cold]
    fn clear_special(&mut self) {
        self.special = false;
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
        let queue = self.bells[bell].queue;
        // SAFETY: the pointer comes from an Rc that the round still borrows; counting it once more
        // makes it ours to drop.
        let queue = unsafe {
            Rc::increment_strong_count(queue.as_ptr());
            Rc::from_raw(queue.as_ptr())
        };
        self.kept.push(queue);
    }

    #[inline]
    pub(super) fn buffer_bytes(&self) -> usize {
        self.words.capacity() * 8
    }

    pub(super) fn drop_buffer(&mut self) {
        self.words = Vec::new();
    }
}

/// One doorbell as its backend sees it: a chain of verbs with their words.
#[derive(Debug)]
pub struct Bell<'a> {
    pub(super) slot: &'a mut Slot,
    pub(super) number: u32,
}

impl Bell<'_> {
    /// Visits the verbs in posted order, each with its words, until one fails.
    #[inline]
    pub fn try_each<E>(
        &mut self,
        mut visit: impl FnMut(&Verb, &mut [u64]) -> Result<(), E>,
    ) -> Result<(), E> {
        for verb in &self.slot.verbs {
            if verb.bell == self.number {
                let first = verb.first_word as usize;
                visit(verb, &mut self.slot.words[first..first + verb.words as usize])?;
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
        Token {
            index: self.slot.index,
            round: self.slot.round,
            bell: self.number,
        }
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
