//! The world: virtual time, what will happen, and the loop that lets it happen.

use std::cell::{RefCell, RefMut};
use std::collections::{BTreeSet, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};

use farside_fabric::runtime::{Random, Runnable, Schedule};
use farside_fabric::{FabricError, NodeId};

use crate::adversary::{FaultKind, Faults};
use crate::digest::Digest;
use crate::event::{Agenda, Event, LOOK};
use crate::flight::Flights;
use crate::node::Node;
use crate::process::{Process, Thread, Work};
use crate::profile::Profile;
use crate::trace::Trace;

pub(crate) struct World {
    state: RefCell<State>,
    pub(crate) woken: Arc<Woken>,
}

/// A message that does something when it arrives, whoever sent it.
pub(crate) type Message = Box<dyn FnOnce(&World)>;

pub(crate) struct State {
    pub(crate) profile: Profile,
    pub(crate) faults: Faults,
    pub(crate) struck: [u64; FaultKind::ALL.len()],
    pub(crate) now: u64,
    pub(crate) agenda: Agenda,
    pub(crate) random: Random,
    pub(crate) digest: Digest,
    pub(crate) verbs: u64,
    /// Since when it is counted who is at work.
    pub(crate) watched_from: u64,
    pub(crate) threads: Vec<Thread>,
    pub(crate) processes: Vec<Process>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) queues: Vec<QueueSide>,
    pub(crate) flights: Flights,
    pub(crate) messages: Vec<Option<Message>>,
    pub(crate) cuts: BTreeSet<(u32, u32)>,
    pub(crate) trace: Trace,
    /// The thread whose task is running just now.
    pub(crate) running: Option<u32>,
    pub(crate) looking: bool,
    /// Counts uses of `block_on`: wakers of an earlier one mean nothing.
    pub(crate) drives: u64,
    pub(crate) stopped: bool,
}

/// A queue as the world sees it.
pub(crate) struct QueueSide {
    pub(crate) process: u32,
    pub(crate) thread: u32,
    pub(crate) node: u32,
    /// Its numbers at the NICs of both.
    pub(crate) here: u32,
    pub(crate) there: u32,
    /// Counts reconnections: what was posted before has no effect after.
    pub(crate) connection: u32,
    /// The node's incarnation that it is connected to.
    pub(crate) incarnation: u32,
    pub(crate) last_arrival: u64,
    pub(crate) last_completion: u64,
    /// Until when verbs of each kind that arrived have taken effect, for C1.
    pub(crate) written: u64,
    pub(crate) read: u64,
    pub(crate) swapped: u64,
    /// Doorbells under way, in posted order.
    pub(crate) flights: VecDeque<u32>,
    /// Done, but to be acknowledged by a later one.
    pub(crate) unacknowledged: Vec<u32>,
    /// The lines that a FLUSH has to make persistent.
    pub(crate) touched: BTreeSet<u32>,
    /// Something was lost: nothing that is posted later on this connection takes effect.
    pub(crate) severed: bool,
    /// The connection has failed: whatever arrives later is answered with this.
    pub(crate) failed: Option<FabricError>,
}

/// Tasks that were woken, by thread.
#[derive(Default)]
pub(crate) struct Woken {
    tasks: Mutex<Vec<(u32, Runnable)>>,
    mains: Mutex<Vec<(u32, u64)>>,
}

pub(crate) struct ThreadSchedule {
    pub(crate) thread: u32,
    pub(crate) woken: Arc<Woken>,
}

impl Schedule for ThreadSchedule {
    fn schedule(&self, task: Runnable) {
        self.woken.tasks.lock().expect("one thread only").push((self.thread, task));
    }
}

struct MainWaker {
    thread: u32,
    drive: u64,
    woken: Arc<Woken>,
}

impl Wake for MainWaker {
    fn wake(self: Arc<Self>) {
        self.woken.mains.lock().expect("one thread only").push((self.thread, self.drive));
    }
}

impl State {
    /// Whether a fault of this kind strikes now.
    #[inline]
    pub(crate) fn strikes(&mut self, kind: FaultKind) -> bool {
        let rate = self.faults.rate(kind);
        let strikes = rate > 0 && self.random.below(1_000_000) < u64::from(rate);
        self.struck[kind as usize] += u64::from(strikes);
        strikes
    }

    pub(crate) fn gone(&self, queue: u32) -> FabricError {
        FabricError::NodeGone(NodeId(self.queues[queue as usize].node as u16))
    }

    /// Lets a thread run as soon as its core is free.
    pub(crate) fn schedule(&mut self, thread: u32) {
        let it = &mut self.threads[thread as usize];
        if it.scheduled {
            return;
        }
        it.scheduled = true;
        let paused = self.processes[it.process as usize].paused_until;
        let at = self.now.max(it.cpu).max(paused);
        self.agenda.push(at, Event::Run(thread));
    }

    /// Makes the adversary look around, if it has reason to.
    pub(crate) fn start_looking(&mut self) {
        if !self.looking && self.faults.strikes_machines() {
            self.looking = true;
            let next = self.now + 1 + self.random.below(2 * LOOK);
            self.agenda.push(next, Event::Look);
        }
    }
}

impl World {
    pub(crate) fn new(profile: Profile, seed: u64, faults: Faults) -> Self {
        World {
            state: RefCell::new(State {
                profile,
                faults,
                struck: [0; FaultKind::ALL.len()],
                now: 0,
                agenda: Agenda::default(),
                random: Random::new(seed),
                digest: Digest::new(seed),
                verbs: 0,
                watched_from: 0,
                threads: Vec::new(),
                processes: Vec::new(),
                nodes: Vec::new(),
                queues: Vec::new(),
                flights: Flights::default(),
                messages: Vec::new(),
                cuts: BTreeSet::new(),
                trace: Trace::default(),
                running: None,
                looking: false,
                drives: 0,
                stopped: false,
            }),
            woken: Arc::default(),
        }
    }

    #[inline]
    pub(crate) fn state(&self) -> RefMut<'_, State> {
        self.state.borrow_mut()
    }

    /// Hands woken tasks to their threads.
    fn collect_woken(&self) {
        let mut tasks = self.woken.tasks.lock().expect("one thread only");
        let mut mains = self.woken.mains.lock().expect("one thread only");
        if tasks.is_empty() && mains.is_empty() {
            return;
        }
        let mut state = self.state();
        for (thread, task) in tasks.drain(..) {
            state.threads[thread as usize].queue.push_back(Work::Task(task));
            state.schedule(thread);
        }
        for (thread, drive) in mains.drain(..) {
            if drive == state.drives {
                state.threads[thread as usize].queue.push_back(Work::Main(drive));
                state.schedule(thread);
            }
        }
    }

    /// Lets things happen until `main`, which belongs to `thread`, is finished.
    pub(crate) fn drive(&self, thread: u32, mut main: Pin<&mut dyn Future<Output = ()>>) {
        let drive = {
            let mut state = self.state();
            state.drives += 1;
            state.drives
        };
        let woken = Arc::clone(&self.woken);
        let waker = Waker::from(Arc::new(MainWaker { thread, drive, woken }));
        let mut cx = Context::from_waker(&waker);
        waker.wake_by_ref();
        loop {
            self.collect_woken();
            let mut state = self.state();
            let next = state.agenda.pop();
            let Some((at, event)) = next else {
                drop(state);
                panic!("the simulated world stands still: everybody waits for somebody else");
            };
            debug_assert!(at >= state.now);
            state.now = at;
            state.digest.mix(at);
            state.digest.mix(event.code());
            drop(state);
            if let Event::Run(ran) = event {
                if self.run(ran, |cx_thread| {
                    debug_assert_eq!(cx_thread, thread);
                    main.as_mut().poll(&mut cx).is_ready()
                }) {
                    return;
                }
            } else {
                self.happen(event);
            }
        }
    }

    /// Runs one piece of work of a thread; `true` if that was the main future, and it is finished.
    fn run(&self, thread: u32, poll_main: impl FnOnce(u32) -> bool) -> bool {
        let work = {
            let mut guard = self.state();
            let state = &mut *guard;
            let it = &mut state.threads[thread as usize];
            it.scheduled = false;
            let process = &state.processes[it.process as usize];
            if !process.alive {
                let dead = std::mem::take(&mut it.queue);
                drop(guard);
                drop(dead); // ends the tasks
                return false;
            }
            if process.paused_until > state.now {
                state.schedule(thread);
                return false;
            }
            let Some(work) = it.queue.pop_front() else { return false };
            let code = state.processes[it.process as usize].code;
            it.work(state.now, state.profile.cpu.switch + code.step_ps());
            state.running = Some(thread);
            state.digest.mix(u64::from(thread));
            work
        };
        let finished = match work {
            Work::Task(task) => {
                task.run();
                false
            }
            Work::Main(drive) if drive == self.state().drives => poll_main(thread),
            Work::Main(_) => false,
        };
        let mut state = self.state();
        state.running = None;
        if !state.threads[thread as usize].queue.is_empty() {
            state.schedule(thread);
        }
        finished
    }

    fn happen(&self, event: Event) {
        match event {
            Event::Arrive(flight) => self.state().arrive(flight),
            Event::Effect(flight, part) => self.state().take_effect(flight, part),
            Event::Complete(flight) => self.complete(flight),
            Event::Timer(thread) => self.fire_timers(thread),
            Event::Control(message) => {
                let message = self.state().messages[message as usize].take();
                if let Some(message) = message {
                    message(self);
                }
            }
            Event::Look => self.state().look(),
            Event::Break(queue, connection) => self.state().break_queue(queue, connection),
            Event::Resume(process) => self.state().resume(process),
            Event::NodeResume(node) => {
                let mut state = self.state();
                let now = state.now;
                state.trace.note(now, || format!("node {node} goes on"));
            }
            Event::NodeRestart(node) => self.state().restart_node(node),
            Event::Heal(process, node) => {
                self.state().cuts.remove(&(process, node));
            }
            Event::Run(_) => unreachable!("handled by the loop"),
        }
    }

    fn fire_timers(&self, thread: u32) {
        loop {
            let due = {
                let mut guard = self.state();
                let state = &mut *guard;
                let it = &mut state.threads[thread as usize];
                let process = &state.processes[it.process as usize];
                it.timers.fire(process.clock.read(state.now))
            };
            match due {
                Some(waker) => waker.wake(),
                None => return,
            }
        }
    }

    /// Ends the world: no task runs any more, and nothing keeps anything else alive.
    pub(crate) fn shut_down(&self) {
        let (workers, under_way) = {
            let mut state = self.state();
            state.stopped = true;
            state.agenda.clear();
            let under_way: Vec<_> =
                state.queues.iter().flat_map(|side| side.flights.iter().copied()).collect();
            let workers = state.threads.iter_mut().map(|thread| thread.worker.take());
            (workers.collect::<Vec<_>>(), under_way)
        };
        for flight in under_way {
            self.give_up(flight, &workers);
        }
        loop {
            let (timers, queues, messages): (Vec<_>, Vec<_>, Vec<_>) = {
                let mut state = self.state();
                let messages = std::mem::take(&mut state.messages);
                let threads = state.threads.iter_mut();
                let (timers, queues) = threads
                    .map(|it| (std::mem::take(&mut it.timers), std::mem::take(&mut it.queue)))
                    .unzip();
                (timers, queues, messages)
            };
            drop((timers, queues, messages));
            // Dropping a task that was woken ends it, which may wake others.
            let woken = std::mem::take(&mut *self.woken.tasks.lock().expect("one thread only"));
            self.woken.mains.lock().expect("one thread only").clear();
            if woken.is_empty() {
                break;
            }
        }
        // Tasks of the dead that wait for each other stay for ever, and this world with them; but not its memory.
        self.state().nodes.iter_mut().for_each(Node::forget);
    }
}
