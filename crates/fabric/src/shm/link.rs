//! A queue to a segment.

use std::sync::Arc;
use std::time::Duration;

use super::client::Attached;
use super::layout::{CALLS, header};
use super::mailbox::{self, CallSlot, Status};
use super::process::{Sighting, has_ended, kill};
use super::segment::Segment;
use super::server::wake;
use crate::link::{Bell, Capabilities, Control, Link, Posted};
use crate::memory::execute;
use crate::runtime::Worker;
use crate::sync::Ordering;
use crate::{ClientId, FabricError, NodeId, Result};

/// How long the kernel may take to end a process that was killed.
const FENCE_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a service may take to answer.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// How often a waiting caller makes sure that the server is still there.
const SERVER_CHECK: Duration = Duration::from_millis(10);

/// Pause between two looks, once a look at every turn of the thread was in vain.
const PAUSE: Duration = Duration::from_micros(50);
const EAGER_LOOKS: u32 = 1000;

pub(super) struct ShmLink {
    worker: Worker,
    segment: Segment,
    attached: Arc<Attached>,
}

impl ShmLink {
    pub(super) fn new(worker: Worker, segment: Segment, attached: Arc<Attached>) -> Self {
        ShmLink { worker, segment, attached }
    }

    fn timed_out(&self, after: Duration) -> FabricError {
        FabricError::TimedOut { node: self.segment.node(), after }
    }

    /// Eagerly at first, then with pauses.
    async fn pause(&self, looks: &mut u32) {
        *looks += 1;
        if *looks < EAGER_LOOKS {
            self.worker.yield_now().await;
        } else {
            self.worker.sleep(PAUSE).await;
        }
    }

    async fn run_call(&self, service: u16, request: &[u8]) -> Result<Vec<u8>> {
        let node = self.segment.node();
        let deadline = self.worker.now() + CALL_TIMEOUT;
        let mut looks = 0;
        let mut next_check = self.worker.now();
        let mut asked: Option<Asked<'_>> = None;
        loop {
            self.segment.check()?;
            if asked.is_none() {
                asked = self.ask(service, request);
            }
            if let Some(answer) = asked.as_mut().and_then(Asked::answer) {
                return decode(node, service, answer);
            }
            let now = self.worker.now();
            if now >= deadline {
                return Err(match asked {
                    Some(_) => self.timed_out(CALL_TIMEOUT),
                    None => FabricError::Limit {
                        what: "calls under way on one segment",
                        limit: CALLS,
                        remedy: "try again later",
                    },
                });
            }
            if now >= next_check {
                self.check_server(service)?;
                next_check = now + SERVER_CHECK;
            }
            self.pause(&mut looks).await;
        }
    }

    fn ask(&self, service: u16, request: &[u8]) -> Option<Asked<'_>> {
        let client = self.attached.id;
        let slot = mailbox::slots(self.segment.control())
            .find(|slot| slot.ask(client, service, request))?;
        wake(&self.segment);
        Some(Asked { slot, client, answered: false })
    }

    fn check_server(&self, service: u16) -> Result<()> {
        let server = self.segment.control()[header::SERVER].load(Ordering::Acquire);
        let registry = self.segment.registry();
        if server == 0 || registry.is_dead(ClientId(server), &self.attached.process) {
            let node = self.segment.node();
            return Err(FabricError::NoService { node, service });
        }
        Ok(())
    }

    async fn run_fence(&self, victim: ClientId) -> Result<()> {
        let node = self.segment.node();
        let denied = |why: String| FabricError::AccessDenied { node, why };
        if victim == self.attached.id {
            return Err(denied("a process cannot fence itself; end it instead".into()));
        }
        self.segment.check()?;
        let Some(entry) = self.segment.registry().note_fenced(victim) else {
            return Ok(());
        };
        let seen = entry.process.look(&self.attached.process);
        match seen.map_err(|e| denied(format!("looking for {victim}: {e}")))? {
            Sighting::Dead => {}
            Sighting::OutOfSight => {
                return Err(denied(format!(
                    "{victim} runs in another pid namespace; fence it from a process there"
                )));
            }
            Sighting::Alive(handle) => {
                kill(&handle).map_err(|e| denied(format!("killing {victim}: {e}")))?;
                let deadline = self.worker.now() + FENCE_TIMEOUT;
                let mut looks = 0;
                while !has_ended(&handle).map_err(|e| denied(format!("watching {victim}: {e}")))? {
                    if self.worker.now() >= deadline {
                        return Err(self.timed_out(FENCE_TIMEOUT));
                    }
                    self.pause(&mut looks).await;
                }
            }
        }
        entry.free();
        Ok(())
    }
}

impl Link for ShmLink {
    fn node(&self) -> NodeId {
        self.segment.node()
    }

    fn memory_bytes(&self) -> u64 {
        self.segment.bytes()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            line_atomic: false,
            masked_cas: true,
            persistence: self.segment.persistence(),
        }
    }

    #[inline]
    fn post(&self, bell: Bell<'_>) -> Posted {
        if !self.segment.is_live() {
            return Posted::Failed(Box::new(FabricError::NodeGone(self.segment.node())));
        }
        execute(self.segment.data(), bell, || self.segment.flush().map_err(Box::new)).into()
    }

    fn call<'a>(&'a self, service: u16, request: &'a [u8]) -> Control<'a, Vec<u8>> {
        Box::pin(self.run_call(service, request))
    }

    fn fence(&self, victim: ClientId) -> Control<'_, ()> {
        Box::pin(self.run_fence(victim))
    }

    fn reconnect(&self) -> Control<'_, ()> {
        // Verbs take effect while they are posted: none of the old queue is left.
        Box::pin(async { self.segment.check() })
    }
}

/// A call under way; dropped before its answer came, it frees its slot.
struct Asked<'s> {
    slot: CallSlot<'s>,
    client: ClientId,
    answered: bool,
}

impl Asked<'_> {
    fn answer(&mut self) -> Option<(u64, Vec<u8>)> {
        let answer = self.slot.answer(self.client);
        self.answered = answer.is_some();
        answer
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        // Once answered, the slot may already be in use by another thread of this process.
        if !self.answered {
            self.slot.give_up(self.client);
        }
    }
}

fn decode(node: NodeId, service: u16, (status, reply): (u64, Vec<u8>)) -> Result<Vec<u8>> {
    if status == Status::Fine as u64 {
        return Ok(reply);
    }
    if status == Status::NoService as u64 {
        return Err(FabricError::NoService { node, service });
    }
    let why = String::from_utf8_lossy(&reply).into_owned();
    Err(FabricError::Service { node, service, why })
}
