//! A queue to a segment.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::client::Attached;
use super::layout::{CALLS, header};
use super::mailbox::{self, CallSlot, Stage, Status};
use super::process::{Sighting, has_ended, kill};
use super::registry::Entry;
use super::segment::Segment;
use super::server::wake;
use crate::link::{Bell, Capabilities, Completer, Control, Link, Posted, Token};
use crate::memory::{Lines, execute, prefetch};
use crate::runtime::Worker;
use crate::sync::Ordering;
use crate::{ClientId, FabricError, NodeId, Result, Time};

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
    /// It is in a file.
    is_kept: bool,
    /// It is on persistent memory: what was touched since the last FLUSH.
    lines: Option<RefCell<Lines>>,
    /// Doorbells that wait for a sync, by the number under which it was asked for.
    waiting: RefCell<VecDeque<(Token, u64)>>,
}

impl ShmLink {
    pub(super) fn new(worker: Worker, segment: Segment, attached: Arc<Attached>) -> Self {
        let is_kept = segment.is_kept();
        let lines = segment.is_kept_by_lines().then(RefCell::default);
        ShmLink { worker, segment, attached, is_kept, lines, waiting: RefCell::default() }
    }

    fn timed_out(&self, after: Duration) -> FabricError {
        FabricError::TimedOut { node: self.segment.node(), after }
    }

    /// Executes a doorbell where a FLUSH takes time.
    fn post_kept(&self, bell: Bell<'_>) -> Posted {
        if let Some(lines) = &self.lines {
            return execute(self.segment.data(), bell, &mut *lines.borrow_mut()).into();
        }
        let (token, mut flushes) = (bell.token(), false);
        let flush = || {
            flushes = true;
            Ok::<(), Box<FabricError>>(())
        };
        if let Err(error) = execute(self.segment.data(), bell, flush) {
            return Posted::Failed(error);
        }
        match self.segment.syncer().filter(|_| flushes) {
            None => Posted::Done,
            Some(syncer) => {
                self.waiting.borrow_mut().push_back((token, syncer.ask()));
                Posted::Pending
            }
        }
    }

    /// The next doorbell whose sync is over, and how that went.
    fn next_synced(&self) -> Option<(Token, Result<(), String>)> {
        let mut waiting = self.waiting.borrow_mut();
        let (token, asked) = *waiting.front()?;
        let done = self.segment.syncer()?.is_done(asked)?;
        waiting.pop_front();
        Some((token, done))
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
                if !self.has_server() {
                    // Once a server had taken it, nobody knows how far it got.
                    let taken = asked.as_ref().is_some_and(Asked::was_taken);
                    let after = CALL_TIMEOUT.saturating_sub(deadline - now);
                    return Err(if taken {
                        self.timed_out(after)
                    } else {
                        FabricError::NoService { node, service }
                    });
                }
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

    fn has_server(&self) -> bool {
        let server = self.segment.control()[header::SERVER].load(Ordering::Acquire);
        server != 0 && !self.segment.registry().is_dead(ClientId(server), &self.attached.process)
    }

    async fn run_fence(&self, victim: ClientId) -> Result<()> {
        let node = self.segment.node();
        let denied = |why: String| FabricError::AccessDenied { node, why };
        if victim == self.attached.id {
            return Err(denied("a process cannot fence itself; end it instead".into()));
        }
        self.segment.check()?;
        let deadline = self.worker.now() + FENCE_TIMEOUT;
        let mut found = self.segment.registry().note_fenced(victim);
        while let Some(entry) = found {
            self.end_process(victim, &entry, deadline).await?;
            entry.free();
            found = self.segment.registry().find(victim);
        }
        self.end_calls(victim, deadline).await
    }

    /// Kills the process behind an entry, unless it is dead, and waits for the kernel's word.
    async fn end_process(&self, victim: ClientId, entry: &Entry<'_>, deadline: Time) -> Result<()> {
        let node = self.segment.node();
        let denied = |why: String| FabricError::AccessDenied { node, why };
        let seen = entry.process.look(&self.attached.process);
        match seen.map_err(|e| denied(format!("looking for {victim}: {e}")))? {
            Sighting::Dead => Ok(()),
            Sighting::OutOfSight => Err(denied(format!(
                "{victim} runs on another machine or in another pid namespace; fence it from there"
            ))),
            Sighting::Alive(handle) => {
                kill(&handle).map_err(|e| denied(format!("killing {victim}: {e}")))?;
                let mut looks = 0;
                while !has_ended(&handle).map_err(|e| denied(format!("watching {victim}: {e}")))? {
                    self.wait_until(deadline, &mut looks).await?;
                }
                Ok(())
            }
        }
    }

    /// Takes back the calls of a dead process, and waits for the one that is being served.
    async fn end_calls(&self, victim: ClientId, deadline: Time) -> Result<()> {
        let mut looks = 0;
        for slot in mailbox::slots(self.segment.control()) {
            slot.reap(victim);
            while slot.stage() == (Some(Stage::Serving), victim) && self.has_server() {
                self.wait_until(deadline, &mut looks).await?;
            }
        }
        Ok(())
    }

    async fn wait_until(&self, deadline: Time, looks: &mut u32) -> Result<()> {
        if self.worker.now() >= deadline {
            return Err(self.timed_out(FENCE_TIMEOUT));
        }
        self.pause(looks).await;
        Ok(())
    }
}

// SAFETY: `post` executes the chain itself and touches nothing else of the worker.
unsafe impl Link for ShmLink {
    fn node(&self) -> NodeId {
        self.segment.node()
    }

    fn memory_bytes(&self) -> u64 {
        self.segment.bytes()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::of_shared_memory(self.segment.persistence())
    }

    fn expect(&self, at: u64) {
        prefetch(self.segment.data(), at);
    }

    #[inline]
    fn post(&self, bell: Bell<'_>) -> Posted {
        if !self.segment.is_live() {
            return Posted::Failed(Box::new(FabricError::NodeGone(self.segment.node())));
        }
        match self.is_kept {
            true => self.post_kept(bell),
            false => execute(self.segment.data(), bell, || Ok(())).into(),
        }
    }

    #[inline]
    fn busy(&self) -> bool {
        self.is_kept && !self.waiting.borrow().is_empty()
    }

    fn poll(&self, completer: &Completer<'_>) -> bool {
        let mut worked = false;
        while let Some((token, done)) = self.next_synced() {
            let node = self.segment.node();
            completer.complete(token, done.map_err(|why| FabricError::FlushFailed { node, why }));
            worked = true;
        }
        worked
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
    fn was_taken(&self) -> bool {
        self.slot.stage() != (Some(Stage::Asked), self.client)
    }

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
