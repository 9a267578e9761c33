//! How long locks are held.

use farside_fabric::Time;

use crate::agent::Agent;

/// Since when locks are held, and for how many round trips.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    pub(crate) since: Time,
    pub(crate) phases: u64,
}

/// How long locks were held: by so many transactions together, from when the first one of each was asked for until all were given back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Holding {
    /// How many.
    pub transactions: u64,
    /// For how long.
    pub nanos: u64,
    /// For how many round trips, the one that gives them back included.
    pub phases: u64,
}

impl std::ops::AddAssign for Holding {
    fn add_assign(&mut self, other: Self) {
        self.transactions += other.transactions;
        self.nanos += other.nanos;
        self.phases += other.phases;
    }
}

impl std::ops::Sub for Holding {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Holding {
            transactions: self.transactions - before.transactions,
            nanos: self.nanos - before.nanos,
            phases: self.phases - before.phases,
        }
    }
}

impl Agent {
    /// Counts how long locks are held, from now on: clocks are read for that.
    pub fn count_holding(&self) {
        self.holding.set(Some(self.holding()));
    }

    /// How long locks were held by those that committed, if that is counted.
    pub fn holding(&self) -> Holding {
        self.holding.get().unwrap_or_default()
    }

    pub(crate) fn note_held(&self, held: Option<Held>) {
        if let Some(Held { since, phases }) = held {
            let nanos = (self.worker.now() - since).as_nanos() as u64;
            let mut holding = self.holding();
            holding += Holding { transactions: 1, nanos, phases };
            self.holding.set(Some(holding));
        }
    }
}
