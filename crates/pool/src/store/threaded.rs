//! Stores that block, on a thread of their own.

use std::future::Future;
use std::pin::Pin;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use super::{ConfigStore, Pending, StoreError, Stored};

/// A store whose operations block.
pub(super) trait BlockingStore: Send + 'static {
    fn read(&mut self, known: u64) -> Result<Stored, StoreError>;
    fn swap(&mut self, revision: u64, config: &[u8]) -> Result<bool, StoreError>;
    fn petition(&mut self, key: &str, what: &[u8]) -> Result<(), StoreError>;
    fn dismiss(&mut self, key: &str) -> Result<(), StoreError>;
}

type Job<S> = Box<dyn FnOnce(&mut S) + Send>;

/// Such a store, for tasks: they wait while its thread blocks. The thread ends with the last clone.
#[derive(Debug)]
pub(super) struct Threaded<S> {
    jobs: Sender<Job<S>>,
}

impl<S> Clone for Threaded<S> {
    fn clone(&self) -> Self {
        Threaded { jobs: self.jobs.clone() }
    }
}

impl<S: BlockingStore> Threaded<S> {
    pub(super) fn new(mut store: S) -> Self {
        let (jobs, queue) = channel::<Job<S>>();
        std::thread::spawn(move || {
            for job in queue {
                job(&mut store);
            }
        });
        Threaded { jobs }
    }

    fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut S) -> Result<T, StoreError> + Send + 'static,
    ) -> Pending<'static, T> {
        let slot = Arc::new(Mutex::new(Slot { result: None, waker: None }));
        let theirs = Arc::clone(&slot);
        let job: Job<S> = Box::new(move |store| {
            let result = work(store);
            let waker = {
                let mut slot = theirs.lock().unwrap_or_else(PoisonError::into_inner);
                slot.result = Some(result);
                slot.waker.take()
            };
            if let Some(waker) = waker {
                waker.wake();
            }
        });
        if self.jobs.send(job).is_err() {
            let gone = StoreError::Unreachable("its thread has ended".into());
            return Box::pin(async { Err(gone) });
        }
        Box::pin(Waiting(slot))
    }
}

struct Slot<T> {
    result: Option<Result<T, StoreError>>,
    waker: Option<Waker>,
}

struct Waiting<T>(Arc<Mutex<Slot<T>>>);

impl<T> Future for Waiting<T> {
    type Output = Result<T, StoreError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match slot.result.take() {
            Some(result) => Poll::Ready(result),
            None => {
                slot.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl<S: BlockingStore> ConfigStore for Threaded<S> {
    fn read(&self, known: u64) -> Pending<'_, Stored> {
        self.run(move |store| store.read(known))
    }

    fn swap<'a>(&'a self, revision: u64, config: &'a [u8]) -> Pending<'a, bool> {
        let config = config.to_vec();
        self.run(move |store| store.swap(revision, &config))
    }

    fn petition<'a>(&'a self, key: &'a str, what: &'a [u8]) -> Pending<'a, ()> {
        let (key, what) = (key.to_owned(), what.to_vec());
        self.run(move |store| store.petition(&key, &what))
    }

    fn dismiss<'a>(&'a self, key: &'a str) -> Pending<'a, ()> {
        let key = key.to_owned();
        self.run(move |store| store.dismiss(&key))
    }
}
