//! What a process knows of the pool, for all its threads: the configuration, and whether it may act.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use farside_fabric::Time;

use crate::config::Config;

/// The pool as one client process sees it.
#[derive(Debug)]
pub struct View {
    config: Mutex<Arc<Config>>,
    epoch: AtomicU64,
    /// Since which epoch the regions are where they are now.
    placed: AtomicU64,
    counting: AtomicU64,
    /// Until when there is a lease.
    valid_until: AtomicU64,
    put_out: AtomicBool,
}

/// Leave to act, as long as the lease lasts and the regions stay where they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Permit {
    placed: u64,
}

impl View {
    pub(crate) fn new(config: Config) -> Self {
        View {
            epoch: AtomicU64::new(config.epoch),
            placed: AtomicU64::new(config.epoch),
            counting: AtomicU64::new(0),
            valid_until: AtomicU64::new(0),
            put_out: AtomicBool::new(false),
            config: Mutex::new(Arc::new(config)),
        }
    }

    /// The newest configuration that this process knows.
    pub fn config(&self) -> Arc<Config> {
        Arc::clone(&self.config.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Its epoch.
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Leave to post verbs by the configuration that is known, if that counts and there is a lease.
    pub fn permit(&self, now: Time) -> Option<Permit> {
        let permit = Permit { placed: self.placed.load(Ordering::Acquire) };
        let counts = self.counting.load(Ordering::Acquire) >= permit.placed;
        (counts && self.has_lease(now)).then_some(permit)
    }

    /// Whether a completion may be believed: there still is a lease, and all regions are where they were
    /// when the permit was given.
    pub fn still(&self, permit: Permit, now: Time) -> bool {
        self.placed.load(Ordering::Acquire) == permit.placed && self.has_lease(now)
    }

    /// Whether there is a lease.
    pub fn has_lease(&self, now: Time) -> bool {
        !self.is_put_out() && now.0 < self.valid_until.load(Ordering::Acquire)
    }

    /// Whether this process is no member any more: it must end, and may come back under a new id.
    pub fn is_put_out(&self) -> bool {
        self.put_out.load(Ordering::Acquire)
    }

    pub(crate) fn extend(&self, until: Time) {
        self.valid_until.fetch_max(until.0, Ordering::AcqRel);
    }

    pub(crate) fn valid_until(&self) -> Time {
        Time(self.valid_until.load(Ordering::Acquire))
    }

    pub(crate) fn counts(&self, epoch: u64) {
        self.counting.fetch_max(epoch, Ordering::AcqRel);
    }

    pub(crate) fn put_out(&self) {
        self.put_out.store(true, Ordering::Release);
    }

    /// Takes over a newer configuration. From now on permits of other placements are void.
    pub(crate) fn learn(&self, config: Config) {
        let mut known = self.config.lock().unwrap_or_else(PoisonError::into_inner);
        if config.epoch <= known.epoch {
            return;
        }
        if known.regions != config.regions || known.epoch + 1 != config.epoch {
            self.placed.store(config.epoch, Ordering::Release);
        }
        self.epoch.store(config.epoch, Ordering::Release);
        *known = Arc::new(config);
    }
}
