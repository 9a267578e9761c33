//! An answer that comes later, to a task of the same thread.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// A question: who holds the first half gives the answer, who holds the second waits for it.
pub fn question<T>() -> (Asked<T>, Answer<T>) {
    let mailbox = Rc::new(RefCell::new(Mailbox { answer: None, waker: None }));
    (Asked(Rc::clone(&mailbox)), Answer(mailbox))
}

#[derive(Debug)]
struct Mailbox<T> {
    answer: Option<T>,
    waker: Option<Waker>,
}

/// Where the answer to a [`question`] is given.
#[derive(Debug)]
pub struct Asked<T>(Rc<RefCell<Mailbox<T>>>);

/// Waits for the answer to a [`question`].
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct Answer<T>(Rc<RefCell<Mailbox<T>>>);

impl<T> Asked<T> {
    /// Gives the answer; nothing happens if nobody waits for it any more.
    pub fn answer(self, answer: T) {
        let waker = {
            let mut mailbox = self.0.borrow_mut();
            mailbox.answer = Some(answer);
            mailbox.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T> Future for Answer<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let mut mailbox = self.0.borrow_mut();
        match mailbox.answer.take() {
            Some(answer) => Poll::Ready(answer),
            None => {
                mailbox.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}
