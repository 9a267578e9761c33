//! Verbs to one node, in order.

use std::marker::PhantomData;

use super::slot::{Op, Slot};
use super::{MAX_VERB_BYTES, MAX_VERBS};
use crate::memory::WORD;
use crate::verbs::queue::QueueState;
use crate::Refusal;

/// Where the result of a verb will be found in the [`Done`](super::Done) of its round.
#[derive(Debug)]
pub struct Ticket<T> {
    pub(super) round: u32,
    pub(super) verb: u32,
    pub(super) result: PhantomData<fn() -> T>,
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
    pub(super) slot: &'r mut Slot,
    pub(super) bell: usize,
    pub(super) fenced: bool,
}

impl Doorbell<'_> {
    /// The next verb takes effect only after all verbs before it.
    #[inline]
    pub fn fenced(&mut self) -> &mut Self {
        self.fenced = true;
        self
    }

    /// READ `bytes` bytes at `at`.
    #[inline]
    pub fn read(&mut self, at: u64, bytes: usize) -> Ticket<Words> {
        let ok = self.check(at, bytes as u64);
        let (ticket, _) = self.push(Op::Read, at, if ok { bytes / WORD as usize } else { 0 });
        ticket
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
        self.check(at, WORD);
        let (ticket, room) = self.push(Op::Cas, at, 2);
        room.copy_from_slice(&[expected, desired]);
        ticket
    }

    /// FAA: add to the word at `at`, wrapping around. Returns the old value.
    #[inline]
    pub fn faa(&mut self, at: u64, addend: u64) -> Ticket<Word> {
        self.check(at, WORD);
        let (ticket, room) = self.push(Op::Faa, at, 1);
        room[0] = addend;
        ticket
    }

    /// CAS of some bits of the word at `at`, where the backend has it. Returns the old value.
    pub fn masked_cas(&mut self, at: u64, cas: MaskedCas) -> Ticket<Word> {
        let queue = self.queue();
        if queue.capabilities.masked_cas {
            self.check(at, WORD);
        } else {
            self.refuse(Refusal::Unsupported {
                node: queue.node,
                what: "masked CAS",
            });
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

    #[inline]
    fn push<T>(&mut self, op: Op, at: u64, words: usize) -> (Ticket<T>, &mut [u64]) {
        if self.slot.verbs.len() >= MAX_VERBS {
            self.refuse(Refusal::TooMany);
            self.slot.forget_verbs();
        }
        let fenced = std::mem::take(&mut self.fenced);
        let round = self.slot.round;
        let (verb, room) = self.slot.push(self.bell, op, fenced, at, words);
        let result = PhantomData;
        (Ticket { round, verb, result }, room)
    }

    #[inline]
    fn check(&mut self, at: u64, bytes: u64) -> bool {
        let memory = self.queue().memory_bytes;
        let aligned = (at | bytes) % WORD == 0;
        if aligned && bytes.wrapping_sub(1) < MAX_VERB_BYTES && at < memory && bytes <= memory - at {
            return true;
        }
        let refusal = self.why_not(at, bytes);
        self.refuse(refusal);
        false
    }

    #[cold]
    fn why_not(&self, at: u64, bytes: u64) -> Refusal {
        let queue = self.queue();
        if bytes == 0 {
            Refusal::Empty { at }
        } else if !(at | bytes).is_multiple_of(WORD) {
            Refusal::Misaligned { at, bytes }
        } else if bytes > MAX_VERB_BYTES {
            Refusal::TooLarge { bytes }
        } else {
            Refusal::OutOfBounds {
                node: queue.node,
                at,
                bytes,
                memory: queue.memory_bytes,
            }
        }
    }

    #[inline]
    fn queue(&self) -> &QueueState {
        self.slot.bells[self.bell].queue()
    }

    /// The first reason stays.
    #[cold]
    fn refuse(&mut self, refusal: Refusal) {
        self.slot.refusal.get_or_insert(refusal);
        self.slot.special = true;
    }
}
