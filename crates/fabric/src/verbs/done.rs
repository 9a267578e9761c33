//! Rounds that have completed, and what their verbs returned.

use std::ops::Index;

use super::doorbell::{Ticket, Word, Words};
use super::slot::Slot;
use super::slots::Held;
use crate::{NodeId, Result};

/// A round all of whose doorbells succeeded: index it with the tickets of its verbs.
#[derive(Debug)]
pub struct Done<'w> {
    /// Present until drop.
    held: Option<Held<'w>>,
}

impl<'w> Done<'w> {
    #[inline(always)]
    pub(super) fn new(held: Held<'w>) -> Self {
        Done { held: Some(held) }
    }

    /// Itself, unless a doorbell failed.
    #[inline(always)]
    pub(super) fn succeeded(self) -> Result<Self> {
        match self.slot().first_error() {
            None => Ok(self),
            Some(error) => Err(error.clone()),
        }
    }

    #[inline]
    fn slot(&self) -> &Slot {
        self.held.as_ref().expect("present until drop")
    }

    #[inline]
    fn words<T>(&self, ticket: Ticket<T>) -> &[u64] {
        let slot = self.slot();
        assert_eq!(ticket.round, slot.round, "a ticket of another round");
        slot.words_of(ticket.verb)
    }
}

impl Drop for Done<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(held) = self.held.take() {
            held.give_back();
        }
    }
}

impl Index<Ticket<Words>> for Done<'_> {
    type Output = [u64];

    #[inline]
    fn index(&self, ticket: Ticket<Words>) -> &[u64] {
        self.words(ticket)
    }
}

impl Index<Ticket<Word>> for Done<'_> {
    type Output = u64;

    #[inline]
    fn index(&self, ticket: Ticket<Word>) -> &u64 {
        &self.words(ticket)[0]
    }
}

/// A round whose doorbells have all completed, some of them perhaps with an error.
#[derive(Debug)]
pub struct Outcomes<'w> {
    done: Done<'w>,
}

impl<'w> Outcomes<'w> {
    pub(super) fn new(done: Done<'w>) -> Self {
        Outcomes { done }
    }

    /// How the doorbell to a node went; `None` if the round had none to it.
    pub fn node(&self, node: NodeId) -> Option<Result<()>> {
        let slot = self.done.slot();
        let bell = slot.bells.iter().position(|bell| bell.queue().node == node)?;
        Some(slot.result(bell))
    }

    /// What a READ returned, if its doorbell succeeded.
    pub fn words(&self, ticket: Ticket<Words>) -> Result<&[u64]> {
        self.of(ticket)
    }

    /// What a CAS or FAA returned, if its doorbell succeeded.
    pub fn word(&self, ticket: Ticket<Word>) -> Result<u64> {
        Ok(self.of(ticket)?[0])
    }

    /// The whole round, if every doorbell succeeded.
    pub fn all(self) -> Result<Done<'w>> {
        self.done.succeeded()
    }

    fn of<T>(&self, ticket: Ticket<T>) -> Result<&[u64]> {
        let slot = self.done.slot();
        if slot.refusal.is_some() {
            let error = slot.first_error().expect("a refused round fails everywhere");
            return Err(error.clone());
        }
        let words = self.done.words(ticket);
        slot.result_of(ticket.verb)?;
        Ok(words)
    }
}
