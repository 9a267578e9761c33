//! Control messages: they do something at a node when they arrive, whatever has become of the sender.

use std::rc::Rc;

use farside_fabric::runtime::{Answer, Asked, question};
use farside_fabric::{FabricError, Result};

use crate::adversary::FaultKind;
use crate::event::Event;
use crate::world::{State, World};

/// Sends `work` to the node of a queue; its result comes back as the answer. Messages are late, lost
/// before they did anything, or lost after, as doorbells are.
pub(crate) fn send<T: 'static>(
    world: &Rc<World>,
    queue: u32,
    needs: Needs,
    work: impl FnOnce(&World) -> Result<T> + 'static,
) -> Answer<Result<T>> {
    let (asked, answer) = question();
    let (arrival, loss) = {
        let mut guard = world.state();
        let state = &mut *guard;
        let thread = &mut state.threads[state.queues[queue as usize].thread as usize];
        let posted = thread.work(state.now, state.profile.cpu.doorbell);
        let sent = posted + state.profile.wire + state.random.below(state.profile.jitter + 1);
        let loss = match state.strikes(FaultKind::Error) {
            false => Loss::None,
            true if state.random.below(2) == 0 => Loss::Request,
            true => Loss::Answer,
        };
        (sent + state.delay(), loss)
    };
    at(world, arrival, move |world| arrive(world, queue, needs, loss, asked, work));
    answer
}

/// Whether a message is for the incarnation that the queue is connected to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Needs {
    SameIncarnation,
    AnyIncarnation,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Loss {
    None,
    Request,
    Answer,
}

/// The message reaches the node.
fn arrive<T: 'static>(
    world: &World,
    queue: u32,
    needs: Needs,
    loss: Loss,
    asked: Asked<Result<T>>,
    work: impl FnOnce(&World) -> Result<T> + 'static,
) {
    let paused_until = {
        let state = world.state();
        let node = &state.nodes[state.queues[queue as usize].node as usize];
        (node.alive && node.paused_until > state.now).then_some(node.paused_until)
    };
    if let Some(until) = paused_until {
        return at(world, until, move |world| arrive(world, queue, needs, loss, asked, work));
    }
    let detect = world.state().profile.detect;
    let refusal = if loss == Loss::Request {
        Some((world.state().timed_out(queue), detect))
    } else {
        refuses(world, queue, needs)
    };
    let (mut result, delay) = match refusal {
        Some((error, delay)) => (Err(error), delay),
        None => (work(world), world.state().answer_delay(queue)),
    };
    let mut there = world.state().now + delay;
    if loss == Loss::Answer && result.is_ok() {
        result = Err(world.state().timed_out(queue));
        there = world.state().now + detect;
    }
    at(world, there, move |world| {
        // What came between may have eaten the answer.
        let lost = refuses(world, queue, Needs::AnyIncarnation);
        let result = match lost {
            Some((error @ (FabricError::NodeGone(_) | FabricError::TimedOut { .. }), _)) => {
                Err(error)
            }
            _ => result,
        };
        asked.answer(result);
    });
}

/// Why the node does not do what a message says, and how long it takes to find out.
fn refuses(world: &World, queue: u32, needs: Needs) -> Option<(FabricError, u64)> {
    let state = world.state();
    let side = &state.queues[queue as usize];
    let client = state.processes[side.process as usize].client;
    let node = &state.nodes[side.node as usize];
    let other = needs == Needs::SameIncarnation && node.incarnation != side.incarnation;
    if !node.alive || other {
        Some((state.gone(queue), state.profile.detect))
    } else if state.cuts.contains(&(side.process, side.node)) {
        Some((state.timed_out(queue), state.profile.detect))
    } else if node.fenced.contains(&client) {
        Some((FabricError::Fenced(client), state.profile.wire))
    } else {
        None
    }
}

impl State {
    /// The node's CPU serves a message: how long until its answer is back.
    fn answer_delay(&mut self, queue: u32) -> u64 {
        let node = &mut self.nodes[self.queues[queue as usize].node as usize];
        node.cpu_free = node.cpu_free.max(self.now) + self.profile.serve_call;
        let served = node.cpu_free - self.now;
        let late = self.delay();
        served + late + self.profile.wire + self.random.below(self.profile.jitter + 1)
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
