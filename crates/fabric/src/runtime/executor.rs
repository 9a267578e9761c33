//! The real runtime: one operating-system thread that runs tasks, polls completions, fires timers,
//! and sleeps when there is nothing to do.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use super::pace::Pace;
use super::run_queue::RunQueue;
use super::{Random, Runtime, Schedule, Time, TimerId, Timers, Worker};

/// How many tasks run before completions and timers are looked at again.
const TASKS_PER_TURN: usize = 64;

/// How many turns without work are spun through before the thread yields its core.
const IDLE_TURNS: u32 = 200;

/// How long a patient thread sleeps while it waits for completions that it must look for.
const PATIENCE: Duration = Duration::from_micros(50);

/// How long a thread sleeps at the most while it waits for completions that wake it: links have time-outs.
const LOOK: Duration = Duration::from_millis(5);

/// Runs the tasks of the thread that made it.
pub struct Executor {
    queue: Arc<RunQueue>,
    timers: RefCell<Timers>,
    random: RefCell<Random>,
    /// Whether waiting for completions must not cost CPU time.
    patient: bool,
}

impl Executor {
    /// An executor for the current thread.
    pub fn new(seed: u64) -> Self {
        Executor {
            queue: Arc::new(RunQueue::new()),
            timers: RefCell::default(),
            random: RefCell::new(Random::new(seed)),
            patient: false,
        }
    }

    /// One that sleeps a little while it waits for completions, instead of spinning: for what is done
    /// beside the real work, such as keeping leases.
    pub fn patient(seed: u64) -> Self {
        Executor { patient: true, ..Self::new(seed) }
    }

    fn fire_timers(&self) -> bool {
        let Some(next) = self.timers.borrow().next() else {
            return false;
        };
        let now = self.now();
        if next > now {
            return false;
        }
        loop {
            let due = self.timers.borrow_mut().fire(now);
            match due {
                Some(waker) => waker.wake(),
                None => return true,
            }
        }
    }

    /// Tasks that the main future cancelled at its end are dropped when they run.
    fn run_queued_once(&self) {
        for _ in 0..self.queue.len() {
            if let Some(task) = self.queue.pop() {
                task.run();
            }
        }
    }

    /// Sleeps until something in flight has arrived, a timer is due, or another thread wakes it; `false` if it cannot.
    fn wait(&self, worker: &Worker) -> bool {
        let next = self.timers.borrow().next();
        let span = next.map_or(LOOK, |at| (at - self.now()).min(LOOK));
        self.queue.sleep(|alarm| worker.wait_for_links(alarm, span))
    }

    /// Nothing can run and nothing is in flight: sleeps until a timer or another thread wakes it.
    fn park(&self) {
        let next = self.timers.borrow().next();
        match next {
            Some(at) => std::thread::park_timeout(at - self.now()),
            None => std::thread::park(),
        }
    }
}

impl Runtime for Executor {
    fn now(&self) -> Time {
        Time::of_host()
    }

    fn random(&self) -> u64 {
        self.random.borrow_mut().draw()
    }

    fn set_timer(&self, at: Time, waker: &Waker) -> TimerId {
        self.timers.borrow_mut().set(at, waker)
    }

    fn cancel_timer(&self, timer: TimerId) {
        self.timers.borrow_mut().cancel(timer);
    }

    fn scheduler(&self) -> Arc<dyn Schedule> {
        Arc::clone(&self.queue) as Arc<dyn Schedule>
    }

    fn drive(&self, worker: &Worker, mut main: Pin<&mut dyn Future<Output = ()>>) {
        let woken =
            Arc::new(MainWaker { woken: AtomicBool::new(true), queue: Arc::clone(&self.queue) });
        let waker = Waker::from(Arc::clone(&woken));
        let mut cx = Context::from_waker(&waker);
        let mut idle = Idle::default();
        loop {
            let mut worked = false;
            if woken.woken.swap(false, Ordering::Acquire) {
                worked = true;
                if main.as_mut().poll(&mut cx).is_ready() {
                    self.run_queued_once();
                    return;
                }
            }
            for _ in 0..TASKS_PER_TURN {
                let Some(task) = self.queue.pop() else { break };
                worked = true;
                task.run();
            }
            worked |= self.queue.admit();
            worked |= self.fire_timers();
            let polled = worker.poll_links();
            worked |= polled.worked;
            if worked {
                idle.end(self);
            } else if !polled.busy {
                self.park();
            } else if self.patient {
                if !self.wait(worker) {
                    let next = self.timers.borrow().next();
                    let sleep = next.map_or(PATIENCE, |at| (at - self.now()).min(PATIENCE));
                    std::thread::park_timeout(sleep);
                }
            } else if idle.looks_on() {
                idle.turns += 1;
                std::hint::spin_loop();
            } else if idle.is_worth_while(self) || !idle.sleep(|| self.wait(worker)) {
                // With more threads than cores the one we wait for may need ours.
                std::thread::yield_now();
            }
        }
    }
}

/// Turns without work, while something is in flight.
#[derive(Default)]
struct Idle {
    /// It has begun.
    looks: bool,
    turns: u32,
    since: Option<Time>,
    pace: Pace,
}

impl Idle {
    /// There is work again.
    fn end(&mut self, executor: &Executor) {
        if self.looks {
            self.pace.end();
            let gap = self.since.take().map_or(Duration::ZERO, |since| executor.now() - since);
            self.pace.note(gap);
            (self.looks, self.turns) = (false, 0);
        }
    }

    /// Whether to look again at once.
    #[inline]
    fn looks_on(&mut self) -> bool {
        if !self.looks {
            self.looks = true;
            self.pace.begin();
        }
        self.turns < IDLE_TURNS && !self.pace.is_crowded()
    }

    /// Whether work may come before a thread that sleeps is awake.
    fn is_worth_while(&mut self, executor: &Executor) -> bool {
        let now = executor.now();
        now - *self.since.get_or_insert(now) < self.pace.spin()
    }

    /// Sleeps, which is no looking; `false` if that cannot be.
    fn sleep(&mut self, wait: impl FnOnce() -> bool) -> bool {
        self.pace.end();
        wait()
    }
}

impl std::fmt::Debug for Executor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Executor").finish_non_exhaustive()
    }
}

struct MainWaker {
    woken: AtomicBool,
    queue: Arc<RunQueue>,
}

impl Wake for MainWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        self.queue.knock();
    }
}
