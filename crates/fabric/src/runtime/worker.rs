//! A compute thread as the code above sees it.

use std::cell::{OnceCell, RefCell};
use std::fmt;
use std::future::Future;
use std::os::fd::BorrowedFd;
use std::rc::{Rc, Weak};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use smallvec::SmallVec;

use super::futures::{Sleep, YieldNow};
use super::random::below;
use super::{Executor, Runtime, Task, Time};
use crate::link::{Completer, Link, Watched};
use crate::verbs::{Queue, QueueState, Round, Slots};

/// A compute thread: it runs tasks and rings doorbells. Clones are handles to the same thread, and
/// stay on it.
#[derive(Clone)]
pub struct Worker {
    inner: Rc<Inner>,
}

struct Inner {
    slots: Slots,
    links: RefCell<Vec<Weak<QueueState>>>,
    runtime: Box<dyn Runtime>,
    /// When it ticks; drawn when it does for the first time.
    phase: OnceCell<u64>,
}

impl Worker {
    /// A worker on the current thread; its random numbers derive from `seed`.
    pub fn new(seed: u64) -> Self {
        Self::on(Box::new(Executor::new(seed)))
    }

    /// A worker on the current thread that spends no CPU time on waiting; its verbs take longer.
    pub fn patient(seed: u64) -> Self {
        Self::on(Box::new(Executor::patient(seed)))
    }

    /// A worker on another runtime, such as the simulator's.
    pub fn on(runtime: Box<dyn Runtime>) -> Self {
        let (slots, links) = (Slots::default(), RefCell::default());
        let inner = Inner { slots, links, runtime, phase: OnceCell::new() };
        Worker { inner: Rc::new(inner) }
    }

    /// Whether two handles are of the same thread.
    pub fn is_same(&self, other: &Worker) -> bool {
        Rc::ptr_eq(&self.inner, &other.inner)
    }

    /// A new round of verbs, still empty.
    #[inline(always)]
    pub fn round(&self) -> Round<'_> {
        Round::new(self)
    }

    /// A queue over a backend's link; the backends' `connect` calls it.
    pub fn queue(&self, link: Box<dyn Link>) -> Queue {
        self.queue_over(Rc::from(link))
    }

    pub(crate) fn queue_over(&self, link: Rc<dyn Link>) -> Queue {
        let queue = Queue::new(link);
        let mut links = self.inner.links.borrow_mut();
        links.retain(|known| known.strong_count() > 0);
        links.push(queue.downgrade());
        queue
    }

    /// Starts a task on this thread. Dropping the handle cancels it; `detach` lets it go on.
    pub fn spawn<F>(&self, future: F) -> Task<F::Output>
    where
        F: Future + 'static,
        F::Output: 'static,
    {
        let scheduler = self.inner.runtime.scheduler();
        let (runnable, task) =
            async_task::spawn_local(future, move |runnable| scheduler.schedule(runnable));
        runnable.schedule();
        task
    }

    /// Runs a future, and all tasks of this thread, until the future is finished.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        let mut output = None;
        {
            let mut main = std::pin::pin!(async { output = Some(future.await) });
            self.inner.runtime.drive(self, main.as_mut());
        }
        output.expect("a runtime drives the main future to its end")
    }

    /// Monotonic time; all processes of one host see the same clock.
    pub fn now(&self) -> Time {
        self.inner.runtime.now()
    }

    /// A random number, uniform over all of `u64`.
    pub fn random(&self) -> u64 {
        self.inner.runtime.random()
    }

    /// A random number below `bound`, which is not zero.
    pub fn random_below(&self, bound: u64) -> u64 {
        below(self.random(), bound)
    }

    /// Says that this thread computes for so long, where time is simulated.
    pub fn compute(&self, span: Duration) {
        self.inner.runtime.compute(span);
    }

    /// Waits for a time span.
    pub fn sleep(&self, span: Duration) -> Sleep<'_> {
        self.sleep_until(self.now() + span)
    }

    /// Waits until a point in time.
    pub fn sleep_until(&self, until: Time) -> Sleep<'_> {
        Sleep::new(&*self.inner.runtime, until)
    }

    /// Waits for the next tick of this thread. All its tasks that tick wake up at the same moments, which costs less than one
    /// after the other; other threads do at others.
    pub fn next_tick(&self, tick: Duration) -> Sleep<'_> {
        let (now, tick) = (self.now(), tick.as_nanos() as u64);
        let phase = *self.inner.phase.get_or_init(|| self.random() >> 1);
        self.sleep(Duration::from_nanos(tick - now.0.wrapping_add(phase) % tick))
    }

    /// Lets the other tasks of this thread run once.
    pub fn yield_now(&self) -> YieldNow {
        YieldNow::default()
    }

    #[inline]
    pub(crate) fn slots(&self) -> &Slots {
        &self.inner.slots
    }

    /// Through which a runtime that is its own network hands in completions.
    ///
    /// # Safety
    ///
    /// As for [`Link`]: not while the same worker's [`Bell`](crate::link::Bell) is in use.
    pub unsafe fn completer(&self) -> Completer<'_> {
        Completer { slots: &self.inner.slots }
    }

    /// Progress of what is in flight.
    pub fn poll_links(&self) -> Polled {
        let completer = Completer { slots: &self.inner.slots };
        let mut polled = Polled::default();
        for queue in self.inner.links.borrow().iter().filter_map(Weak::upgrade) {
            if queue.link.busy() {
                polled.busy = true;
                polled.worked |= queue.link.poll(&completer);
            }
        }
        polled
    }
}

impl Worker {
    /// Sleeps until a link that is busy has something to do, `other` is readable, or for so long; `false` at once if a link cannot
    /// be waited for.
    pub(super) fn wait_for_links(&self, other: BorrowedFd<'_>, span: Duration) -> bool {
        let mut fds = SmallVec::<[PollFd<'_>; 16]>::new();
        fds.push(PollFd::from_borrowed_fd(other, PollFlags::IN));
        let links = self.inner.links.borrow();
        let queues: SmallVec<[_; 16]> = links.iter().filter_map(Weak::upgrade).collect();
        for queue in queues.iter().filter(|queue| queue.link.busy()) {
            let Some(Watched { fd, writes }) = queue.link.watched() else { return false };
            let out = if writes { PollFlags::OUT } else { PollFlags::empty() };
            // SAFETY: a link keeps it open until it is used again, and nothing uses it before this returns.
            let fd = unsafe { BorrowedFd::borrow_raw(fd) };
            fds.push(PollFd::from_borrowed_fd(fd, PollFlags::IN | out));
        }
        let span = Timespec { tv_sec: span.as_secs() as _, tv_nsec: span.subsec_nanos() as _ };
        // Whatever it says: one looks again.
        let _ = rustix::event::poll(&mut fds, Some(&span));
        true
    }
}

/// What a look at the links of a worker found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Polled {
    /// Something is in flight.
    pub busy: bool,
    /// There was progress.
    pub worked: bool,
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").finish_non_exhaustive()
    }
}

/// Runs `body` on `threads` threads, each with a worker of its own, pinned to a core where there are
/// enough of them. Returns what each thread returned.
pub fn run_threads<T: Send>(
    threads: usize,
    seed: u64,
    body: impl Fn(usize, &Worker) -> T + Sync,
) -> Vec<T> {
    let cores = available_cores();
    let body = &body;
    let cores = &cores;
    std::thread::scope(|scope| {
        let run = |number: usize| {
            move || {
                if threads <= cores.len() {
                    pin_to(cores[number]);
                }
                let worker = Worker::new(seed.wrapping_add(number as u64));
                body(number, &worker)
            }
        };
        let handles: Vec<_> = (0..threads).map(|number| scope.spawn(run(number))).collect();
        handles
            .into_iter()
            .map(|handle| handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}

/// The cores that this process may run on.
fn available_cores() -> Vec<usize> {
    match rustix::thread::sched_getaffinity(None) {
        Ok(set) => (0..rustix::thread::CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect(),
        Err(_) => Vec::new(),
    }
}

/// Keeps the current thread on one core; without the right to do so it simply stays free.
fn pin_to(core: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(core);
    let _ = rustix::thread::sched_setaffinity(None, &set);
}
