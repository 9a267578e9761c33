//! The time of a pool, on which all its processes agree within bounds that each of them knows (`farmv2.txt` §4.1, §4.3).
//!
//! One node, the *master*, has the clock: the home node of the configuration. Every process asks it for the time again and again
//! ([`follow()`]), and derives from the answers, and from its own clock, the earliest and the latest that it may be (`sync`).
//!
//! Time never goes back, also when the master is lost. Then a configuration without a master is made, and whoever
//! acknowledges it gives out no times any more, and tells the latest that it may have given out. When that configuration
//! counts, nobody gives out times of the old master: all have acknowledged, and the leases of those who were put out have ended. The
//! manager takes the latest of all, and of its own reckoning; the new master's clock goes on from there, by what the next
//! configuration says that it is *ahead* of itself.

mod follow;
mod sync;

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering, fence};

use farside_fabric::{Time, Worker};
use serde::{Deserialize, Serialize};

pub(crate) use follow::ask;
pub use follow::follow;
pub(crate) use sync::is_alarming;
use sync::{Knowledge, Sync};

/// Whose clock is the time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Master {
    /// The node.
    pub node: u16,
    /// What is added to what its clock says, wrapping around.
    pub ahead: u64,
    /// The time at which it began to be the master: nobody has given out a later one before.
    pub since: u64,
}

/// Time as a process knows it: written by one thread, read by all.
#[derive(Debug, Default)]
pub struct PoolTime {
    /// Odd while something changes.
    version: AtomicU64,
    /// Times may be given out.
    enabled: AtomicBool,
    /// What the best synchronizations said.
    lower: [AtomicU64; 2],
    upper: [AtomicU64; 2],
    /// They are about the own clock.
    exact: AtomicBool,
    /// There is an upper bound to reckon with, be it enabled or not.
    known: AtomicBool,
    /// The clock of this machine is not good enough.
    faulty: AtomicBool,
    drift_ppb: AtomicI64,
}

impl PoolTime {
    /// The earliest and the latest that it may be; `None` while nobody may know that.
    #[inline]
    pub fn bounds(&self, worker: &Worker) -> Option<(u64, u64)> {
        self.bounds_by(|| worker.now())
    }

    /// The same by a clock that is read here.
    pub fn bounds_by(&self, now: impl Fn() -> Time) -> Option<(u64, u64)> {
        loop {
            let version = self.version.load(Ordering::Acquire);
            let enabled = self.enabled.load(Ordering::Relaxed);
            let [lower_master, received] =
                self.lower.each_ref().map(|word| word.load(Ordering::Relaxed));
            let [upper_master, sent] =
                self.upper.each_ref().map(|word| word.load(Ordering::Relaxed));
            let exact = self.exact.load(Ordering::Relaxed);
            // Between two looks at the version: whoever takes the time away afterwards reads its clock later.
            let now = now().0;
            fence(Ordering::Acquire);
            if version % 2 == 1 || self.version.load(Ordering::Relaxed) != version {
                std::hint::spin_loop();
                continue;
            }
            if !enabled {
                return None;
            }
            let lower = Sync { sent: received, master: lower_master, received, exact };
            let upper = Sync { sent, master: upper_master, received: sent, exact };
            return Some((lower.lower(now), upper.upper(now)));
        }
    }

    /// The latest that it may be by the newest master that was known, be times given out or not; `None` if none was ever known.
    pub fn reckon(&self, now: u64) -> Option<u64> {
        let [master, sent] = self.upper.each_ref().map(|word| word.load(Ordering::Acquire));
        let known = self.known.load(Ordering::Acquire);
        // Also where the clock is the own one: a little later than that does no harm.
        known.then(|| Sync { sent, master, received: sent, exact: false }.upper(now))
    }

    /// Whether the clock of this machine runs so differently from the others' that nothing may be done by it.
    pub fn is_faulty(&self) -> bool {
        self.faulty.load(Ordering::Acquire)
    }

    /// By how many parts in a billion it is ahead of the master's, as far as that is certain.
    pub fn drift_ppb(&self) -> i64 {
        self.drift_ppb.load(Ordering::Acquire)
    }

    fn change(&self, act: impl FnOnce()) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        act();
        self.version.store(version + 2, Ordering::Release);
    }

    /// No times are given out from now on.
    pub(crate) fn disable(&self) {
        self.change(|| self.enabled.store(false, Ordering::Relaxed));
        // Whoever has read the clock before has done so by now, for a reckoning that follows.
        fence(Ordering::SeqCst);
    }

    /// Bounds are known, and may be used if the own clock is good enough.
    fn publish(&self, known: &Knowledge, good: bool) {
        let Knowledge { lower, upper, .. } = known;
        self.change(|| {
            self.lower[0].store(lower.master, Ordering::Relaxed);
            self.lower[1].store(lower.received, Ordering::Relaxed);
            self.upper[0].store(upper.master, Ordering::Relaxed);
            self.upper[1].store(upper.sent, Ordering::Relaxed);
            self.exact.store(lower.exact && upper.exact, Ordering::Relaxed);
            self.known.store(true, Ordering::Relaxed);
            self.enabled.store(good, Ordering::Relaxed);
        });
        self.drift_ppb.store(known.drift_ppb(), Ordering::Release);
    }

    /// There is a new master. Its time began at `since`, at some moment after `before`: that is a bound for whoever has not
    /// asked it yet.
    fn turn_to(&self, before: Option<u64>, since: u64) {
        self.change(|| {
            self.enabled.store(false, Ordering::Relaxed);
            self.upper[0].store(since, Ordering::Relaxed);
            self.upper[1].store(before.unwrap_or(0), Ordering::Relaxed);
            self.known.store(before.is_some(), Ordering::Relaxed);
        });
        self.faulty.store(false, Ordering::Release);
        self.drift_ppb.store(0, Ordering::Release);
    }

    /// The own clock, or the master's, is not what clocks should be: nothing is done by it.
    fn is_beyond_bounds(&self, known: &Knowledge) {
        self.disable();
        self.faulty.store(true, Ordering::Release);
        let drift = match known.drift_ppb() {
            0 => i64::MAX,
            drift => drift,
        };
        self.drift_ppb.store(drift, Ordering::Release);
    }
}
