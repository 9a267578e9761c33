//! Timers of one thread.

use std::collections::BTreeMap;
use std::task::Waker;

use super::Time;

/// Names a timer, to cancel it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct TimerId {
    at: Time,
    serial: u64,
}

/// Wakers by the time they wait for.
#[derive(Debug, Default)]
pub struct Timers {
    waiting: BTreeMap<TimerId, Waker>,
    serial: u64,
}

impl Timers {
    /// Wakes `waker` when [`Timers::fire`] is called at `at` or later.
    pub fn set(&mut self, at: Time, waker: &Waker) -> TimerId {
        self.serial += 1;
        let serial = self.serial;
        let id = TimerId { at, serial };
        self.waiting.insert(id, waker.clone());
        id
    }

    /// Forgets a timer.
    pub fn cancel(&mut self, id: TimerId) {
        self.waiting.remove(&id);
    }

    /// When the next timer is due.
    pub fn next(&self) -> Option<Time> {
        self.waiting.keys().next().map(|id| id.at)
    }

    /// Takes one timer that is due, the earliest first.
    pub fn fire(&mut self, now: Time) -> Option<Waker> {
        let first = self.waiting.first_entry()?;
        (first.key().at <= now).then(|| first.remove())
    }
}
