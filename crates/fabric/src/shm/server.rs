//! The thread that answers the calls to a segment.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::thread::futex;

use super::client::Attached;
use super::layout::header;
use super::mailbox::{self, Status};
use super::process::ProcessName;
use super::segment::Segment;
use crate::services::Services;
use crate::sync::Ordering;
use crate::{ClientId, FabricError, Result};

/// How long the thread looks for more work before it sleeps.
const SPIN: Duration = Duration::from_micros(50);

/// How often a sleeping server looks for slots of dead clients, and whether it should stop.
const ROUNDS: Duration = Duration::from_millis(50);

/// Answers the calls to a segment while it lives.
#[derive(Debug)]
pub struct Server {
    segment: Segment,
    attached: Arc<Attached>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub(super) fn start(
        segment: Segment,
        attached: Arc<Attached>,
        services: Arc<Services>,
    ) -> Result<Self> {
        become_server(&segment, &attached)?;
        mailbox::slots(segment.control()).for_each(|slot| slot.take_over());
        let mut server = Server { segment, attached, stop: Arc::default(), thread: None };
        let thread = std::thread::Builder::new()
            .name(format!("farside calls {}", server.segment.node().0))
            .spawn({
                let (segment, stop) = (server.segment.clone(), Arc::clone(&server.stop));
                let me = server.attached.process;
                move || serve(&segment, &services, &me, &stop)
            })
            .map_err(|e| FabricError::setup("starting the thread that answers calls", e))?;
        server.thread = Some(thread);
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        wake(&self.segment);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let word = &self.segment.control()[header::SERVER];
        let _ = word.compare_exchange(self.attached.id.0, 0, Ordering::AcqRel, Ordering::Relaxed);
    }
}

/// One process serves at a time; one that died is replaced.
fn become_server(segment: &Segment, attached: &Attached) -> Result<()> {
    let word = &segment.control()[header::SERVER];
    let known = word.load(Ordering::Acquire);
    let vacant = known == 0 || segment.registry().is_dead(ClientId(known), &attached.process);
    let taken = vacant
        && word.compare_exchange(known, attached.id.0, Ordering::AcqRel, Ordering::Relaxed).is_ok();
    if !taken {
        return Err(FabricError::setup(
            format!("serving calls of {}", segment.node()),
            format!("{} serves them already; end that process first", ClientId(known)),
        ));
    }
    Ok(())
}

fn serve(segment: &Segment, services: &Services, me: &ProcessName, stop: &AtomicBool) {
    let mut busy_until = Instant::now() + SPIN;
    let mut next_rounds = Instant::now() + ROUNDS;
    while !stop.load(Ordering::Acquire) {
        let seen = requests(segment).load(Ordering::Acquire);
        let served = mailbox::slots(segment.control())
            .filter(|slot| answer(slot, segment, services))
            .count();
        let now = Instant::now();
        if now >= next_rounds {
            reap_the_dead(segment, me);
            next_rounds = now + ROUNDS;
        }
        if served > 0 {
            busy_until = now + SPIN;
        } else if now < busy_until {
            std::thread::yield_now();
        } else {
            let timeout = futex::Timespec { tv_sec: 0, tv_nsec: ROUNDS.as_nanos() as _ };
            // A new request, a time-out or a signal: in each case look again.
            let _ = futex::wait(requests(segment), futex::Flags::empty(), seen, Some(&timeout));
        }
    }
}

fn answer(slot: &mailbox::CallSlot<'_>, segment: &Segment, services: &Services) -> bool {
    let Some((client, service, request)) = slot.take() else {
        return false;
    };
    let run = || services.run(segment.node(), client, service, &request);
    let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
    let panicked = || FabricError::Service {
        node: segment.node(),
        service,
        why: "the service panicked".into(),
    };
    match ran.unwrap_or_else(|_| Err(panicked())) {
        Ok(reply) => slot.reply(client, Status::Fine, &reply),
        Err(FabricError::NoService { .. }) => slot.reply(client, Status::NoService, &[]),
        Err(FabricError::Service { why, .. }) => slot.reply(client, Status::Failed, cut(&why)),
        Err(other) => slot.reply(client, Status::Failed, cut(&other.to_string())),
    }
    true
}

fn cut(why: &str) -> &[u8] {
    &why.as_bytes()[..why.len().min(1024)]
}

fn reap_the_dead(segment: &Segment, me: &ProcessName) {
    for slot in mailbox::slots(segment.control()) {
        let (_, client) = slot.stage();
        if client != ClientId(0) && segment.registry().is_dead(client, me) {
            slot.reap(client);
        }
    }
}

/// Wakes the server of a segment, in whichever process it is.
pub(super) fn wake(segment: &Segment) {
    requests(segment).fetch_add(1, Ordering::SeqCst);
    let _ = futex::wake(requests(segment), futex::Flags::empty(), 1);
}

/// The low half of the word that counts requests, as the kernel's futex wants it. Nobody uses the
/// word in any other size.
fn requests(segment: &Segment) -> &AtomicU32 {
    let word = std::ptr::from_ref(&segment.control()[header::REQUESTS]);
    const { assert!(cfg!(target_endian = "little"), "the low half comes first") };
    // SAFETY: the word is valid and aligned for as long as the segment, and only used through this.
    unsafe { &*word.cast::<AtomicU32>() }
}
