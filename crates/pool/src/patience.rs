//! Waiting for something, but not for long.

use std::future::Future;
use std::task::Poll;
use std::time::Duration;

use farside_fabric::Worker;

/// What `future` yields, or `None` if it takes longer than `span`. Then it is dropped; verbs that it has
/// posted may still take effect.
pub async fn within<T>(
    worker: &Worker,
    span: Duration,
    future: impl Future<Output = T>,
) -> Option<T> {
    let mut future = std::pin::pin!(future);
    let mut limit = std::pin::pin!(worker.sleep(span));
    std::future::poll_fn(|cx| {
        if let Poll::Ready(value) = future.as_mut().poll(cx) {
            return Poll::Ready(Some(value));
        }
        limit.as_mut().poll(cx).map(|()| None)
    })
    .await
}
