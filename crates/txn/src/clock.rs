//! Time, and how uncertain it is.
//!
//! True time is within the bounds that a clock gives. "Now is past x" always means the lower bound.

use std::time::Duration;

use farside_fabric::Worker;

/// Time as a thread knows it.
pub trait Clock {
    /// The earliest and the latest that it may be, in nanoseconds.
    fn bounds(&self) -> (u64, u64);
}

/// The clock of a worker, which is off by no more than so much: nothing on one host.
#[derive(Clone, Debug)]
pub struct WorkerClock {
    worker: Worker,
    uncertainty: u64,
}

impl WorkerClock {
    /// Of threads of one host.
    pub fn of_host(worker: &Worker) -> Self {
        Self::within(worker, Duration::ZERO)
    }

    /// That is off by at most so much.
    pub fn within(worker: &Worker, uncertainty: Duration) -> Self {
        WorkerClock { worker: worker.clone(), uncertainty: uncertainty.as_nanos() as u64 }
    }
}

impl Clock for WorkerClock {
    fn bounds(&self) -> (u64, u64) {
        let now = self.worker.now().0;
        (now.saturating_sub(self.uncertainty), now + self.uncertainty)
    }
}
