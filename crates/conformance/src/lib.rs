//! The conformance suite: what `farside_fabric::contracts` promises, tested against every backend.
//!
//! A *case* is an async function that knows nothing of the backend. It runs on a [`Bed`], which has
//! memory nodes and starts *actors*: other clients that do a [`Job`], in threads, processes or
//! simulated machines, as the backend has them. Actors and cases meet in far memory only.

pub mod actor;
pub mod bed;
pub mod beds;
pub mod cases;
pub mod other_host;

pub use actor::{Job, Role};
pub use bed::{Actor, Bed, Ended};

use std::time::Duration;

/// No case takes longer.
pub const CASE_LIMIT: Duration = Duration::from_secs(60);

/// Runs one case on a fresh bed, within [`CASE_LIMIT`].
pub fn run(case: &cases::Case, bed: &dyn Bed) -> anyhow::Result<()> {
    let worker = bed.worker();
    worker.block_on(async {
        let mut case = (case.run)(bed);
        let mut limit = std::pin::pin!(worker.sleep(CASE_LIMIT));
        std::future::poll_fn(|cx| {
            use std::task::Poll;
            if let Poll::Ready(result) = case.as_mut().poll(cx) {
                return Poll::Ready(result);
            }
            limit
                .as_mut()
                .poll(cx)
                .map(|()| Err(anyhow::anyhow!("still running after {CASE_LIMIT:?}")))
        })
        .await
    })
}
