//! Verbs to one node, in order.

use std::marker::PhantomData;

use super::queue::QueueState;
use super::slot::{Heading, Op, Slot};
use super::{MAX_ROUND_BYTES, MAX_VERB_BYTES, Queue};
use crate::Refusal;
use crate::memory::WORD;

/// Where the result of a verb will be found in the [`Done`](super::Done) of its round.
///
/// One word, so that it stays in a register: which round, how many words, and the first of them.
#[derive(Debug)]
pub struct Ticket<T> {
    bits: u64,
    result: PhantomData<fn() -> T>,
}

impl<T> Ticket<T> {
    const FIRST_BITS: u32 = 24;
    const WORDS_BITS: u32 = 20;

    #[inline(always)]
    fn new(round: RoundMark, first: usize, words: usize) -> Self {
        let bits = round.0 | (words as u64) << Self::FIRST_BITS | first as u64;
        Ticket { bits, result: PhantomData }
    }

    #[inline(always)]
    pub(super) fn is_of(self, round: RoundMark) -> bool {
        (self.bits ^ round.0) >> RoundMark::SHIFT == 0
    }

    #[inline(always)]
    pub(super) fn first(self) -> usize {
        (self.bits & ((1 << Self::FIRST_BITS) - 1)) as usize
    }

    #[inline(always)]
    pub(super) fn words(self) -> usize {
        ((self.bits >> Self::FIRST_BITS) & ((1 << Self::WORDS_BITS) - 1)) as usize
    }
}

const _: () = {
    assert!(MAX_ROUND_BYTES / WORD < 1 << Ticket::<Words>::FIRST_BITS);
    assert!(MAX_VERB_BYTES / WORD < 1 << Ticket::<Words>::WORDS_BITS);
    assert!(Ticket::<Words>::FIRST_BITS + Ticket::<Words>::WORDS_BITS == RoundMark::SHIFT);
};

/// Tells the tickets of one round from those of the million before it, in the high bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct RoundMark(u64);

impl RoundMark {
    const SHIFT: u32 = 44;

    #[inline(always)]
    pub(super) fn next(self) -> Self {
        RoundMark(self.0.wrapping_add(1 << Self::SHIFT))
    }
}

impl<T> Clone for Ticket<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Ticket<T> {}

/// The result of a CAS or FAA: the word's old value, a `u64`.
#[derive(Debug)]
pub enum Word {}

/// The result of a READ: the words, a `[u64]`.
#[derive(Debug)]
pub enum Words {}

/// The operands of a masked CAS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MaskedCas {
    /// What the word must be, in the bits of `compare_mask`.
    pub expected: u64,
    /// What the word becomes, in the bits of `swap_mask`.
    pub desired: u64,
    /// The bits that are compared.
    pub compare_mask: u64,
    /// The bits that are replaced.
    pub swap_mask: u64,
}

/// The doorbell of a round to one node: verbs are posted in the order they are added, and take
/// effect in the order that [C1](crate::contracts#c1-order) promises.
///
/// A verb that no backend may execute refuses the whole round when it is rung.
#[derive(Debug)]
pub struct Doorbell<'r> {
    slot: &'r mut Slot,
    queue: &'r QueueState,
    /// The headings of its verbs, as far as the doorbell determines them.
    heading: Heading,
}

impl<'r> Doorbell<'r> {
    #[inline(always)]
    pub(super) fn new(slot: &'r mut Slot, queue: &'r Queue) -> Self {
        let heading = Heading::of_bell(slot.bell(&queue.state));
        Doorbell { slot, queue: &queue.state, heading }
    }

    /// The same doorbell, for verbs that take effect only after all verbs before them.
    #[inline]
    pub fn fenced(&mut self) -> Doorbell<'_> {
        Doorbell { slot: self.slot, queue: self.queue, heading: self.heading.fenced() }
    }

    /// READ `bytes` bytes at `at`.
    #[inline]
    pub fn read(&mut self, at: u64, bytes: usize) -> Ticket<Words> {
        if !self.check(at, bytes as u64) {
            return self.void();
        }
        self.push(Op::Read, at, bytes / WORD as usize).0
    }

    /// WRITE `words` at `at`; they are copied now.
    #[inline]
    pub fn write(&mut self, at: u64, words: &[u64]) {
        if self.check(at, words.len() as u64 * WORD) {
            let (_, room) = self.push::<Words>(Op::Write, at, words.len());
            room.copy_from_slice(words);
        }
    }

    /// CAS the word at `at`: if it is `expected`, it becomes `desired`. Returns the old value.
    #[inline]
    pub fn cas(&mut self, at: u64, expected: u64, desired: u64) -> Ticket<Word> {
        if !self.check(at, WORD) {
            return self.void();
        }
        let (ticket, room) = self.push(Op::Cas, at, 2);
        room.copy_from_slice(&[expected, desired]);
        ticket
    }

    /// FAA: add to the word at `at`, wrapping around. Returns the old value.
    #[inline]
    pub fn faa(&mut self, at: u64, addend: u64) -> Ticket<Word> {
        if !self.check(at, WORD) {
            return self.void();
        }
        let (ticket, room) = self.push(Op::Faa, at, 1);
        room[0] = addend;
        ticket
    }

    /// CAS of some bits of the word at `at`, where the backend has it. Returns the old value.
    pub fn masked_cas(&mut self, at: u64, cas: MaskedCas) -> Ticket<Word> {
        if !self.queue.capabilities.masked_cas {
            let node = self.queue.node;
            self.refuse(Refusal::Unsupported { node, what: "masked CAS" });
            return self.void();
        }
        if !self.check(at, WORD) {
            return self.void();
        }
        let (ticket, room) = self.push(Op::MaskedCas, at, 4);
        room.copy_from_slice(&[cas.expected, cas.desired, cas.compare_mask, cas.swap_mask]);
        ticket
    }

    /// FLUSH ([C4](crate::contracts#c4-persistence)).
    #[inline]
    pub fn flush(&mut self) {
        self.push::<Words>(Op::Flush, 0, 0);
    }

    /// A ticket of a round that is refused, for which there will never be a result.
    #[cold]
    fn void<T>(&self) -> Ticket<T> {
        Ticket::new(self.slot.round, 0, 0)
    }

    #[inline(always)]
    fn push<T>(&mut self, op: Op, at: u64, words: usize) -> (Ticket<T>, &mut [u64]) {
        let heading = self.heading.verb(op, words);
        let round = self.slot.round;
        let (first, room) = self.slot.push(heading, at, words);
        (Ticket::new(round, first, words), room)
    }

    #[inline(always)]
    fn check(&mut self, at: u64, bytes: u64) -> bool {
        let memory = self.queue.memory_bytes;
        let aligned = (at | bytes).is_multiple_of(WORD);
        let sized = bytes.wrapping_sub(1) < MAX_VERB_BYTES;
        if aligned && sized && at < memory && bytes <= memory - at {
            return true;
        }
        self.refuse(self.why_not(at, bytes));
        false
    }

    #[cold]
    fn why_not(&self, at: u64, bytes: u64) -> Refusal {
        let QueueState { node, memory_bytes: memory, .. } = *self.queue;
        if bytes == 0 {
            Refusal::Empty { at }
        } else if !(at | bytes).is_multiple_of(WORD) {
            Refusal::Misaligned { at, bytes }
        } else if bytes > MAX_VERB_BYTES {
            Refusal::TooLarge { bytes }
        } else {
            Refusal::OutOfBounds { node, at, bytes, memory }
        }
    }

    /// The first reason stays.
    #[cold]
    fn refuse(&mut self, refusal: Refusal) {
        self.slot.refusal.get_or_insert(refusal);
        self.slot.special = true;
    }
}
