//! Time, and how uncertain it is.
//!
//! True time is within the bounds that a clock gives. "Now is past x" always means the lower bound.

use std::sync::Arc;
use std::time::Duration;

use farside_fabric::Worker;
use farside_pool::View;

/// Time as a thread knows it.
pub trait Clock {
    /// The earliest and the latest that it may be, in nanoseconds; `None` while nobody may know that.
    fn bounds(&self) -> Option<(u64, u64)>;

    /// A time that is not earlier than any that was given out so far, by anybody.
    fn latest(&self) -> u64;
}

/// The clock of a worker, which is off by no more than so much: nothing on one host.
#[derive(Clone, Debug)]
pub struct WorkerClock {
    worker: Worker,
    uncertainty: u64,
    ahead: u64,
}

impl WorkerClock {
    /// Of threads of one host.
    pub fn of_host(worker: &Worker) -> Self {
        Self::within(worker, Duration::ZERO)
    }

    /// That is off by at most so much.
    pub fn within(worker: &Worker, uncertainty: Duration) -> Self {
        let uncertainty = uncertainty.as_nanos() as u64;
        WorkerClock { worker: worker.clone(), uncertainty, ahead: 0 }
    }

    /// That goes on where another one has ended, so far ahead of this one.
    #[must_use]
    pub fn ahead(self, by: Duration) -> Self {
        WorkerClock { ahead: by.as_nanos() as u64, ..self }
    }
}

impl Clock for WorkerClock {
    fn bounds(&self) -> Option<(u64, u64)> {
        let now = self.worker.now().0 + self.ahead;
        Some((now.saturating_sub(self.uncertainty), now + self.uncertainty))
    }

    fn latest(&self) -> u64 {
        self.worker.now().0 + self.ahead + 2 * self.uncertainty
    }
}

/// The time of a pool, which its processes agree on.
#[derive(Clone, Debug)]
pub struct PoolClock {
    worker: Worker,
    view: Arc<View>,
}

impl PoolClock {
    /// As a thread of a process knows it.
    pub fn new(worker: &Worker, view: &Arc<View>) -> Self {
        PoolClock { worker: worker.clone(), view: Arc::clone(view) }
    }
}

impl Clock for PoolClock {
    #[inline]
    fn bounds(&self) -> Option<(u64, u64)> {
        self.view.time().bounds(&self.worker)
    }

    /// Nobody is more uncertain of the time than for a lease.
    fn latest(&self) -> u64 {
        let reckoned = self.view.time().reckon(self.worker.now().0);
        reckoned.map_or(u64::MAX, |time| time + self.view.config().lease_ns)
    }
}
