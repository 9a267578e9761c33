//! Control messages: they do something at a node when they arrive, whatever has become of the sender.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use farside_fabric::{FabricError, Result};

use crate::event::Event;
use crate::world::World;

/// Where an answer will be found.
struct Mailbox<T> {
    answer: Option<Result<T>>,
    waker: Option<Waker>,
}

/// Waits for an answer.
pub(crate) struct Answer<T>(Rc<RefCell<Mailbox<T>>>);

impl<T> Future for Answer<T> {
    type Output = Result<T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T>> {
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

/// Sends `work` to the node of a queue; its result comes back as the answer.
pub(crate) fn send<T: 'static>(
    world: &Rc<World>,
    queue: u32,
    work: impl FnOnce(&World) -> Result<T> + 'static,
) -> Answer<T> {
    let mailbox = Rc::new(RefCell::new(Mailbox { answer: None, waker: None }));
    let answer = Rc::clone(&mailbox);
    let arrival = {
        let mut guard = world.state();
        let state = &mut *guard;
        let thread = &mut state.threads[state.queues[queue as usize].thread as usize];
        thread.cpu = thread.cpu.max(state.now) + state.profile.cpu.doorbell;
        thread.cpu + state.profile.wire + state.random.below(state.profile.jitter + 1)
    };
    at(world, arrival, move |world| {
        let (result, delay) = run_at_node(world, queue, work);
        let there = world.state().now + delay;
        at(world, there, move |_| {
            let waker = {
                let mut mailbox = mailbox.borrow_mut();
                mailbox.answer = Some(result);
                mailbox.waker.take()
            };
            if let Some(waker) = waker {
                waker.wake();
            }
        });
    });
    Answer(answer)
}

/// What the node makes of a message, and how long the answer takes.
fn run_at_node<T>(
    world: &World,
    queue: u32,
    work: impl FnOnce(&World) -> Result<T>,
) -> (Result<T>, u64) {
    let (error, delay) = {
        let mut guard = world.state();
        let state = &mut *guard;
        let side = &state.queues[queue as usize];
        let cut = state.cuts.contains(&(side.process, side.node));
        let client = state.processes[side.process as usize].client;
        let node = &mut state.nodes[side.node as usize];
        let lost = !node.alive || cut;
        node.cpu_free = node.cpu_free.max(state.now) + state.profile.serve_call;
        let served = node.cpu_free.max(node.paused_until) - state.now;
        let error = if !node.alive {
            Some(state.gone(queue))
        } else if cut {
            Some(state.timed_out(queue))
        } else if node.fenced.contains(&client) {
            Some(FabricError::Fenced(client))
        } else {
            None
        };
        let jitter = state.random.below(state.profile.jitter + 1);
        let delay = if lost { state.profile.detect } else { served + state.profile.wire + jitter };
        (error, delay)
    };
    match error {
        Some(error) => (Err(error), delay),
        None => (work(world), delay),
    }
}

/// Lets something happen at a point in time.
pub(crate) fn at(world: &World, when: u64, what: impl FnOnce(&World) + 'static) {
    let mut state = world.state();
    if state.stopped {
        return;
    }
    let number = match state.messages.iter().position(Option::is_none) {
        Some(free) => free,
        None => {
            state.messages.push(None);
            state.messages.len() - 1
        }
    };
    state.messages[number] = Some(Box::new(what));
    state.agenda.push(when, Event::Control(number as u32));
}
