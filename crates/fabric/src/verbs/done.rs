//! Rounds that have completed, and what their verbs returned.

use std::ops::Index;

use super::doorbell::{Ticket, Word, Words};
use super::slot::Slot;
use super::slots::Held;
use crate::{NodeId, Result};

/// A round all of whose doorbells succeeded: index it with the tickets of its verbs.
#[derive(Debug)]
pub struct Done<'w> {
    held: Held<'w>,
}

impl<'w> Done<'w> {
    #[inline(always)]
    pub(super) fn new(held: Held<'w>) -> Self {
        Done { held }
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
        &self.held
    }

    #[inline]
    fn script<T>(&self, ticket: Ticket<T>) -> &[u64] {
        let slot = self.slot();
        assert!(ticket.is_of(slot.round), "a ticket of another round");
        slot.script()
    }
}

impl Drop for Done<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.held.give_back();
    }
}

impl Index<Ticket<Words>> for Done<'_> {
    type Output = [u64];

    #[inline]
    fn index(&self, ticket: Ticket<Words>) -> &[u64] {
        &self.script(ticket)[ticket.first()..][..ticket.words()]
    }
}

impl Index<Ticket<Word>> for Done<'_> {
    type Output = u64;

    #[inline]
    fn index(&self, ticket: Ticket<Word>) -> &u64 {
        &self.script(ticket)[ticket.first()]
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
        let to_it = |bell: &usize| slot.bells[*bell].queue().node == node;
        // A round may reach a node through several queues.
        let results = (0..slot.bells.len()).filter(to_it).map(|bell| slot.result(bell));
        results.reduce(Result::and)
    }

    /// What a READ returned, if its doorbell succeeded.
    pub fn words(&self, ticket: Ticket<Words>) -> Result<&[u64]> {
        self.check(ticket)?;
        Ok(&self.done[ticket])
    }

    /// What a CAS or FAA returned, if its doorbell succeeded.
    pub fn word(&self, ticket: Ticket<Word>) -> Result<u64> {
        self.check(ticket)?;
        Ok(self.done[ticket])
    }

    /// The whole round, if every doorbell succeeded.
    pub fn all(self) -> Result<Done<'w>> {
        self.done.succeeded()
    }

    /// How the doorbell of a verb went.
    fn check<T>(&self, ticket: Ticket<T>) -> Result<()> {
        let slot = self.done.slot();
        assert!(ticket.is_of(slot.round), "a ticket of another round");
        // A refused round may have forgotten its verbs.
        if slot.refusal.is_some() { slot.result(0) } else { slot.result_of(ticket.first()) }
    }
}
