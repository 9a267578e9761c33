//! Reading a store that may hang, without hanging.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use farside_fabric::Worker;

use super::{ConfigStore, StoreError, Stored};
use crate::patience::within;

type Reading = Pin<Box<dyn Future<Output = Result<Stored, StoreError>>>>;

/// Reads a store, one request at a time. What is not answered in time is waited for when the reader
/// comes back.
pub(crate) struct Reader {
    store: Rc<dyn ConfigStore>,
    reading: RefCell<Option<Reading>>,
}

impl Reader {
    pub(crate) fn new(store: &Rc<dyn ConfigStore>) -> Self {
        Reader { store: Rc::clone(store), reading: RefCell::new(None) }
    }

    /// What the store has, or had a while ago; `None` if it does not answer within `span`.
    pub(crate) async fn read(
        &self,
        worker: &Worker,
        span: Duration,
    ) -> Option<Result<Stored, StoreError>> {
        let begun = self.reading.borrow_mut().take();
        let mut reading = begun.unwrap_or_else(|| {
            let store = Rc::clone(&self.store);
            Box::pin(async move { store.read(0).await })
        });
        let answer = within(worker, span, &mut reading).await;
        if answer.is_none() {
            *self.reading.borrow_mut() = Some(reading);
        }
        answer
    }
}
