//! A config store in the simulator: it can be slow, cut off from some processes, and away.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use farside_fabric::Worker;
use farside_pool::store::Pending;
use farside_pool::{ConfigStore, StoreError, Stored};

/// The store itself.
#[derive(Default)]
pub(crate) struct StoreWorld {
    pub(crate) stored: Stored,
    /// Nobody reaches it.
    pub(crate) away: bool,
    /// These processes do not reach it.
    pub(crate) cut: BTreeSet<u64>,
    /// Now and then a request is this late, and an answer is lost; zero: it is as it should be.
    pub(crate) late: Duration,
}

/// The store as one process sees it.
#[derive(Clone)]
pub(crate) struct SimStore {
    pub(crate) world: Rc<RefCell<StoreWorld>>,
    pub(crate) worker: Worker,
    pub(crate) client: u64,
}

/// One way to the store.
const WAY: Duration = Duration::from_micros(40);

impl SimStore {
    /// Does something at the store, perhaps without an answer.
    async fn visit<R>(&self, act: impl FnOnce(&mut Stored) -> R) -> Result<R, StoreError> {
        self.travel().await?;
        let result = act(&mut self.world.borrow_mut().stored);
        let bad = !self.world.borrow().late.is_zero();
        if bad && self.worker.random_below(5) == 0 {
            return Err(StoreError::Unreachable("the answer was lost".into()));
        }
        self.travel().await?;
        Ok(result)
    }

    async fn travel(&self) -> Result<(), StoreError> {
        let late = self.world.borrow().late;
        let extra = if self.worker.random_below(8) == 0 { late } else { Duration::ZERO };
        let jitter = Duration::from_nanos(self.worker.random_below(20_000));
        self.worker.sleep(WAY + jitter + extra).await;
        let lost = {
            let world = self.world.borrow();
            world.away || world.cut.contains(&self.client)
        };
        if lost {
            self.worker.sleep(Duration::from_micros(400)).await;
            return Err(StoreError::Unreachable("the network is cut".into()));
        }
        Ok(())
    }
}

impl ConfigStore for SimStore {
    fn read(&self, known: u64) -> Pending<'_, Stored> {
        Box::pin(self.visit(move |stored| stored.clone().unless(known)))
    }

    fn swap<'a>(&'a self, revision: u64, config: &'a [u8]) -> Pending<'a, bool> {
        Box::pin(self.visit(move |stored| stored.swap(revision, config)))
    }

    fn petition<'a>(&'a self, key: &'a str, what: &'a [u8]) -> Pending<'a, ()> {
        Box::pin(self.visit(move |stored| stored.petition(key, what)))
    }

    fn dismiss<'a>(&'a self, key: &'a str) -> Pending<'a, ()> {
        Box::pin(self.visit(move |stored| stored.dismiss(key)))
    }
}
