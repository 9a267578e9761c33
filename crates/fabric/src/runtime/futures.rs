//! What a task can wait for besides verbs.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::{Runtime, Time, TimerId};

/// Waits until a point in time.
#[must_use = "futures do nothing unless awaited"]
pub struct Sleep<'w> {
    runtime: &'w dyn Runtime,
    until: Time,
    timer: Option<TimerId>,
    begun: bool,
}

impl<'w> Sleep<'w> {
    pub(super) fn new(runtime: &'w dyn Runtime, until: Time) -> Self {
        Sleep { runtime, until, timer: None, begun: false }
    }
}

impl Future for Sleep<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        if let Some(timer) = this.timer.take() {
            this.runtime.cancel_timer(timer);
        }
        let begun = std::mem::replace(&mut this.begun, true);
        if this.runtime.now() >= this.until {
            if begun {
                return Poll::Ready(());
            }
            // Others run first, also where the time is past before anybody looks: whoever waits for them in a loop of
            // short sleeps would keep them from running.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        this.timer = Some(this.runtime.set_timer(this.until, cx.waker()));
        Poll::Pending
    }
}

impl Drop for Sleep<'_> {
    fn drop(&mut self) {
        if let Some(timer) = self.timer.take() {
            self.runtime.cancel_timer(timer);
        }
    }
}

impl std::fmt::Debug for Sleep<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sleep").field("until", &self.until).finish_non_exhaustive()
    }
}

/// Lets the other tasks of the thread run once.
#[derive(Debug, Default)]
#[must_use = "futures do nothing unless awaited"]
pub struct YieldNow {
    yielded: bool,
}

impl Future for YieldNow {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}
