//! Rounds that were posted: awaited, or acknowledged passively.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use super::done::{Done, Outcomes};
use super::slots::Held;
use crate::Result;

/// A round that was posted. Awaiting it yields its [`Done`], or the first error among its doorbells.
#[derive(Debug)]
#[must_use = "await it, or use Round::post where nobody needs the completion"]
pub struct Ringing<'w> {
    /// Taken when it has completed.
    held: Option<Held<'w>>,
}

impl<'w> Ringing<'w> {
    #[inline(always)]
    pub(super) fn new(held: Held<'w>) -> Self {
        Ringing { held: Some(held) }
    }

    /// Awaits all doorbells and tells them apart: some may have failed.
    pub async fn outcomes(mut self) -> Outcomes<'w> {
        let done = std::future::poll_fn(|cx| self.poll_done(cx)).await;
        Outcomes::new(done)
    }

    #[inline(always)]
    fn poll_done(&mut self, cx: &mut Context<'_>) -> Poll<Done<'w>> {
        let held = self.held.as_mut().expect("not polled after it has completed");
        let ready = if held.special { held.landed(cx.waker()) } else { held.may_go_on(cx.waker()) };
        if !ready {
            return Poll::Pending;
        }
        let held = self.held.take().expect("seen above");
        Poll::Ready(Done::new(held))
    }
}

impl<'w> Future for Ringing<'w> {
    type Output = Result<Done<'w>>;

    #[inline(always)]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(ready!(self.get_mut().poll_done(cx)).succeeded())
    }
}

impl Drop for Ringing<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(held) = self.held.take() {
            held.abandon();
        }
    }
}

/// A round that was posted without asking for its completion. Dropping it changes nothing.
#[derive(Debug)]
pub struct Passive<'w> {
    ringing: Ringing<'w>,
    known: Option<Result<()>>,
}

impl<'w> Passive<'w> {
    #[inline]
    pub(super) fn new(ringing: Ringing<'w>) -> Self {
        Passive { ringing, known: None }
    }

    /// Whether it has been acknowledged meanwhile, and how it went. Never waits.
    pub fn acknowledged(&mut self) -> Option<Result<()>> {
        if self.ringing.held.as_ref().is_some_and(|held| held.open == 0) {
            let held = self.ringing.held.take().expect("seen above");
            let done = Done::new(held);
            self.known = Some(done.succeeded().map(drop));
        }
        self.known.clone()
    }
}
