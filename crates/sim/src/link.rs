//! A queue of the simulated fabric.

use std::rc::Rc;

use farside_fabric::link::{Bell, Capabilities, Control, Link, Posted};
use farside_fabric::{ClientId, NodeId, TIME};

use crate::control::{self, Needs};
use crate::world::World;

pub(crate) struct SimLink {
    pub(crate) world: Rc<World>,
    pub(crate) queue: u32,
    pub(crate) node: u32,
}

// SAFETY: `post` copies the doorbell and touches nothing else of the worker.
unsafe impl Link for SimLink {
    fn node(&self) -> NodeId {
        NodeId(self.node as u16)
    }

    fn memory_bytes(&self) -> u64 {
        self.world.state().nodes[self.node as usize].memory.len() as u64 * 8
    }

    fn capabilities(&self) -> Capabilities {
        let state = self.world.state();
        let (profile, queue) = (state.profile, &state.queues[self.queue as usize]);
        Capabilities {
            line_atomic: profile.line_atomic,
            masked_cas: true,
            persistence: profile.persistence,
            on_chip_bytes: profile.on_chip_bytes,
            life: u64::from(queue.incarnation),
        }
    }

    fn post(&self, bell: Bell<'_>) -> Posted {
        self.world.post(self.queue, bell)
    }

    fn call<'a>(&'a self, service: u16, request: &'a [u8]) -> Control<'a, Vec<u8>> {
        let (queue, node, request) = (self.queue, self.node, request.to_vec());
        Box::pin(control::send(&self.world, queue, Needs::SameIncarnation, move |world| {
            let (client, services) = {
                let state = world.state();
                if service == TIME {
                    let time = state.nodes[node as usize].clock.read(state.now);
                    return Ok(time.0.to_le_bytes().to_vec());
                }
                let process = state.queues[queue as usize].process;
                let client = state.processes[process as usize].client;
                (client, Rc::clone(&state.nodes[node as usize].services))
            };
            services.run(NodeId(node as u16), client, service, &request)
        }))
    }

    fn fence(&self, victim: ClientId) -> Control<'_, ()> {
        let node = self.node;
        Box::pin(control::send(&self.world, self.queue, Needs::SameIncarnation, move |world| {
            world.state().fence(node, victim);
            Ok(())
        }))
    }

    fn reconnect(&self) -> Control<'_, ()> {
        let queue = self.queue;
        Box::pin(control::send(&self.world, queue, Needs::AnyIncarnation, move |world| {
            world.state().reconnect(queue);
            Ok(())
        }))
    }
}

impl Drop for SimLink {
    fn drop(&mut self) {
        let mut guard = self.world.state();
        let state = &mut *guard;
        let side = &mut state.queues[self.queue as usize];
        state.processes[side.process as usize].nics.disconnect();
        state.nodes[side.node as usize].nics.disconnect();
    }
}
