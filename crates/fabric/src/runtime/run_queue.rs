//! Tasks of one thread that can go on. Its own thread uses it without atomics; others leave tasks at
//! a side door and wake the thread.

use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;

use rustix::event::{EventfdFlags, eventfd};

use super::{Runnable, Schedule};

pub(super) struct RunQueue {
    owner: ThreadMark,
    thread: Thread,
    ours: UnsafeCell<VecDeque<Runnable>>,
    others: Mutex<Vec<Runnable>>,
    /// Something was left at the side door, or the main future was woken.
    knocked: AtomicBool,
    /// The thread waits for descriptors, of which this is one.
    asleep: AtomicBool,
    alarm: Option<OwnedFd>,
}

// SAFETY: `ours` is touched by the owning thread alone (each method checks), everything else is
// synchronized by itself.
unsafe impl Sync for RunQueue {}

impl RunQueue {
    pub(super) fn new() -> Self {
        RunQueue {
            owner: ThreadMark::current(),
            thread: std::thread::current(),
            ours: UnsafeCell::default(),
            others: Mutex::default(),
            knocked: AtomicBool::new(false),
            asleep: AtomicBool::new(false),
            // Without one it does not sleep like that.
            alarm: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok(),
        }
    }

    /// The next task, for the owning thread.
    #[inline]
    pub(super) fn pop(&self) -> Option<Runnable> {
        assert_eq!(self.owner, ThreadMark::current(), "only its thread runs a queue");
        // SAFETY: this is the owning thread, and no reference outlives this statement.
        unsafe { (*self.ours.get()).pop_front() }
    }

    /// How many tasks wait, for the owning thread.
    pub(super) fn len(&self) -> usize {
        assert_eq!(self.owner, ThreadMark::current(), "only its thread runs a queue");
        // SAFETY: as in pop.
        unsafe { (*self.ours.get()).len() }
    }

    /// Takes over what other threads left; `true` if anyone knocked.
    #[inline]
    pub(super) fn admit(&self) -> bool {
        // Most of the time nobody knocked: look before touching the line for writing.
        if !self.knocked.load(Ordering::Relaxed) || !self.knocked.swap(false, Ordering::Acquire) {
            return false;
        }
        let tasks = std::mem::take(&mut *self.others.lock().expect("no panic while held"));
        tasks.into_iter().for_each(|task| self.schedule(task));
        true
    }

    /// Makes the owning thread look again.
    pub(super) fn knock(&self) {
        if self.owner == ThreadMark::current() {
            self.knocked.store(true, Ordering::Release);
            return;
        }
        self.knocked.store(true, Ordering::SeqCst);
        if let Some(alarm) = &self.alarm
            && self.asleep.load(Ordering::SeqCst)
        {
            let _ = rustix::io::write(alarm, &1u64.to_ne_bytes());
        }
        self.thread.unpark();
    }

    /// Has the owning thread wait for descriptors in `sleep`, and for others who knock; `false` if that cannot be.
    pub(super) fn sleep(&self, sleep: impl FnOnce(BorrowedFd<'_>) -> bool) -> bool {
        let Some(alarm) = &self.alarm else { return false };
        self.asleep.store(true, Ordering::SeqCst);
        // Who knocks later sees that it sleeps.
        let slept = self.knocked.load(Ordering::SeqCst) || sleep(alarm.as_fd());
        self.asleep.store(false, Ordering::SeqCst);
        if slept {
            let _ = rustix::io::read(alarm, &mut [0; 8]);
        }
        slept
    }
}

impl Schedule for RunQueue {
    #[inline]
    fn schedule(&self, task: Runnable) {
        if self.owner == ThreadMark::current() {
            // SAFETY: this is the owning thread, and no reference outlives this statement.
            unsafe { (*self.ours.get()).push_back(task) };
        } else {
            self.others.lock().expect("no panic while held").push(task);
            self.knock();
        }
    }
}

/// Tells threads apart by the address of a thread-local: cheaper than `ThreadId`. A later thread may
/// get the mark of one that has ended, which does no harm: the ended one does not race with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct ThreadMark(usize);

impl ThreadMark {
    #[inline]
    fn current() -> Self {
        thread_local!(static MARK: u8 = const { 0 });
        MARK.with(|mark| ThreadMark(std::ptr::from_ref(mark).addr()))
    }
}
