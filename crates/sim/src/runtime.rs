//! A simulated thread as its worker's runtime.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use farside_fabric::runtime::{Runtime, Schedule, TimerId};
use farside_fabric::{Time, Worker};

use crate::event::Event;
use crate::world::World;

pub(crate) struct SimRuntime {
    pub(crate) world: Rc<World>,
    pub(crate) thread: u32,
    pub(crate) schedule: Arc<dyn Schedule>,
}

impl Runtime for SimRuntime {
    fn now(&self) -> Time {
        let state = self.world.state();
        let thread = &state.threads[self.thread as usize];
        // A running task has got as far as its core has.
        let at =
            if state.running == Some(self.thread) { state.now.max(thread.cpu) } else { state.now };
        state.processes[thread.process as usize].clock.read(at)
    }

    fn random(&self) -> u64 {
        self.world.state().threads[self.thread as usize].random.draw()
    }

    fn set_timer(&self, at: Time, waker: &Waker) -> TimerId {
        let mut guard = self.world.state();
        let state = &mut *guard;
        let thread = &mut state.threads[self.thread as usize];
        let when = state.processes[thread.process as usize].clock.when(at).max(state.now);
        state.agenda.push(when, Event::Timer(self.thread));
        thread.timers.set(at, waker)
    }

    fn cancel_timer(&self, timer: TimerId) {
        self.world.state().threads[self.thread as usize].timers.cancel(timer);
    }

    fn compute(&self, span: Duration) {
        let mut guard = self.world.state();
        let state = &mut *guard;
        let now = state.now;
        state.threads[self.thread as usize].work(now, span.as_nanos() as u64 * 1000);
    }

    fn scheduler(&self) -> Arc<dyn Schedule> {
        Arc::clone(&self.schedule)
    }

    fn drive(&self, _: &Worker, main: Pin<&mut dyn Future<Output = ()>>) {
        self.world.drive(self.thread, main);
    }
}
