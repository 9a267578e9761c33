//! Asking the master for the time, again and again: on the thread that keeps the lease, which has nothing else to do.

use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::time::Duration;

use farside_fabric::{Queue, TIME, Told, Worker, probe};

use super::Master;
use super::sync::{Knowledge, Sync, Verdict};
use crate::links::{Connect, Links};
use crate::view::View;

/// How often the master is asked, at most and at least.
const SHORTEST: Duration = Duration::from_micros(250);
const LONGEST: Duration = Duration::from_millis(20);

/// All processes together ask the master 200,000 times a second at most.
const MASTERS_PAUSE: Duration = Duration::from_micros(5);

/// The bounds grow by one part in 512. After so many round trips they have grown by half of one.
const ROUND_TRIPS: u64 = 256;

/// Leases are short where round trips are: it asks several times in one, for all to notice at about the same time if a clock drifts,
/// but not more often than once in so many round trips.
const ROUND_TRIPS_AT_LEAST: u64 = 64;

/// Keeps what a process knows of the time up to date, as long as there is its view.
pub async fn follow(worker: Worker, connect: Rc<dyn Connect>, view: Weak<View>) {
    let careful = view.upgrade().is_some_and(|view| view.has_manager());
    let links = match careful {
        true => Links::new(&worker, &connect),
        false => Links::wary(&worker, &connect),
    };
    let mut follower =
        Follower { worker, links, master: None, known: None, proven: false, before: None };
    while let Some(known) = view.upgrade().filter(|view| !view.is_put_out()) {
        let config = known.config();
        let look = Duration::from_nanos(config.lease_ns) / 8;
        let pause = match follower.ask(&known).await {
            // What is known exactly stays so; whether it is the same clock still is looked at now and then.
            Some(Sync { exact: true, .. }) => LONGEST,
            Some(sync) => {
                let round_trips = |count| Duration::from_nanos(sync.round_trip() * count);
                round_trips(ROUND_TRIPS).min(look.max(round_trips(ROUND_TRIPS_AT_LEAST)))
            }
            None => look / 4,
        };
        let share = config.sessions.len() as u32 * MASTERS_PAUSE;
        drop(known);
        follower.pause(pause.clamp(SHORTEST, LONGEST).max(share), look, &view).await;
    }
}

/// Somebody who follows a master.
struct Follower {
    worker: Worker,
    links: Links,
    /// Whom it follows, and what it knows from there.
    master: Option<Master>,
    known: Option<Knowledge>,
    /// The own clock was good for some master before.
    proven: bool,
    /// A moment at which there was none: the next one began after that.
    before: Option<u64>,
}

impl Follower {
    /// Asks the master once.
    async fn ask(&mut self, view: &Arc<View>) -> Option<Sync> {
        let config = view.config();
        let Some(master) = config.master else {
            self.before = Some(self.worker.now().0);
            return None;
        };
        if self.master != Some(master) {
            self.turn_to(master, view);
        }
        let node = config.node(master.node)?;
        self.links.keep(&config.nodes);
        let asking = async { ask(&self.worker, &self.links.to(node).await?, master.ahead).await };
        let patience = Duration::from_nanos(config.lease_ns) / 8;
        let sync = self.links.within(patience, node, asking).await.flatten()?;
        if view.config().master != Some(master) {
            // That was the time of another one.
            return None;
        }
        self.take(view, sync);
        Some(sync)
    }

    /// Waits for so long, and looks now and then whether there is another master.
    async fn pause(&self, span: Duration, look: Duration, view: &Weak<View>) {
        let until = self.worker.now() + span;
        while self.worker.now() < until {
            self.worker.sleep(look.min(until - self.worker.now())).await;
            let master = view.upgrade().map(|view| view.config().master);
            if master != Some(self.master) {
                return;
            }
        }
    }

    /// Bounds of another master are none; but the own clock is the same.
    fn turn_to(&mut self, master: Master, view: &View) {
        self.master = Some(master);
        self.proven |= self.known.take().is_some_and(|known| known.is_proven());
        view.time().turn_to(self.before.take(), master.since);
    }

    fn take(&mut self, view: &View, sync: Sync) {
        let time = view.time();
        if time.is_faulty() {
            // It stays so, and is told, until there is another master or this process is put out.
            return;
        }
        let proven = self.proven || sync.exact;
        let first = self.known.is_none();
        let known = self.known.get_or_insert_with(|| Knowledge::begin(sync, proven));
        let verdict = match first {
            false => known.take(sync),
            true if proven => Verdict::Good,
            true => Verdict::Unproven,
        };
        let good = match verdict {
            Verdict::Good => true,
            Verdict::Unproven => {
                probe!("a clock is on probation");
                false
            }
            Verdict::Suspicious => {
                probe!("a clock drifts");
                known.is_proven()
            }
            Verdict::Faulty => {
                probe!("a clock is beyond the bounds");
                time.is_beyond_bounds(known);
                return;
            }
        };
        time.publish(known, good);
    }
}

/// What the clock of a node says, and so much more.
pub(crate) async fn ask(worker: &Worker, queue: &Queue, ahead: u64) -> Option<Sync> {
    let sent = worker.now();
    let answer = queue.call(TIME, &[]).await.ok()?;
    let received = worker.now();
    let told = Told::understand(&answer, sent, received)?;
    if let Some(more) = told.ahead_of_ours {
        let time = received.0.wrapping_add(more).wrapping_add(ahead);
        return Some(Sync::of_same_clock(received.0, time));
    }
    let (sent, received) = (sent.0, received.0);
    Some(Sync { sent, master: told.time.wrapping_add(ahead), received, exact: false })
}
