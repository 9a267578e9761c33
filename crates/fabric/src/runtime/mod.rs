//! A compute thread: its tasks, its time, its randomness, and the rounds it has in flight.
//!
//! One thread per core runs one [`Worker`]; each coordinator is a task on it, and completions are
//! polled by the thread that posted. Nothing here takes a lock on the data path. Everything a thread
//! takes from the outside world comes through [`Runtime`], so that the simulator can own all of it.

mod answer;
mod executor;
mod futures;
pub(crate) mod pace;
mod random;
mod run_queue;
mod time;
mod timers;
mod urgent;
mod worker;

pub use answer::{Answer, Asked, question};
pub use async_task::{Runnable, Task};
pub use executor::Executor;
pub use futures::{Sleep, YieldNow};
pub use random::Random;
pub use time::Time;
pub use timers::{TimerId, Timers};
pub use urgent::hurry;
pub use worker::{Polled, Worker, run_threads};

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

/// What a compute thread takes from the outside world; [`Executor`] is the real one.
pub trait Runtime {
    /// Monotonic time. All processes of one host see the same clock.
    fn now(&self) -> Time;

    /// The next random number of this thread.
    fn random(&self) -> u64;

    /// Wakes `waker` once `at` has come.
    fn set_timer(&self, at: Time, waker: &Waker) -> TimerId;

    /// Forgets a timer, which may have fired already.
    fn cancel_timer(&self, timer: TimerId);

    /// This thread computes for so long. Only where time is simulated does that have to be said.
    fn compute(&self, _span: Duration) {}

    /// Where woken tasks of this thread go.
    fn scheduler(&self) -> Arc<dyn Schedule>;

    /// Runs the tasks of `worker` until `main` is finished.
    fn drive(&self, worker: &Worker, main: Pin<&mut dyn Future<Output = ()>>);
}

/// Takes tasks that can go on; wakers carry it to any thread.
pub trait Schedule: Send + Sync {
    /// Runs the task again, later, on its own thread.
    fn schedule(&self, task: Runnable);
}
