//! One coordinator.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use farside_fabric::runtime::Random;
use farside_fabric::{Time, Worker};

use super::{Control, Shared, Until};
use crate::engine::{Effort, Engine, Failure, Rows, Session};
use crate::history::{Ended, Outcome, Recorder};
use crate::load::{Effect, Tx, Workload};

/// After so many attempts a transaction is given up: something is wrong then.
const MOST_TRIES: u32 = 100_000;

/// The longest that a transaction waits before its next attempt.
const LONGEST_BACKOFF: u64 = 1 << 20;

pub(super) struct Coordinator<E: Engine, W: Workload> {
    shared: Rc<Shared<E, W>>,
    worker: Worker,
    number: u64,
    random: Random,
    log: Recorder,
    open: Rc<RefCell<Option<Open<W::Input>>>>,
    rows: Rows,
    /// Numbers for its next attempts.
    numbers: Range<u64>,
    /// Transactions that it has committed and not told of.
    untold: Untold,
}

/// Numbers of attempts that a coordinator takes at a time, and commits that it tells of at a time: all threads write
/// those counters.
const AT_ONCE: u64 = 64;

/// Transactions that were committed, for those who watch.
struct Untold {
    control: Arc<Control>,
    commits: u64,
}

impl Untold {
    fn count(&mut self) {
        self.commits += 1;
        if self.commits == AT_ONCE {
            self.tell();
        }
    }

    fn tell(&mut self) {
        self.control.committed.fetch_add(std::mem::take(&mut self.commits), Ordering::Relaxed);
    }
}

impl Drop for Untold {
    fn drop(&mut self) {
        self.tell();
    }
}

/// An attempt that has not ended.
pub(super) struct Open<I> {
    pub(super) id: u64,
    pub(super) begin: u64,
    pub(super) input: I,
    /// What it changes if it commits, as soon as that is known.
    pub(super) effect: Effect,
}

impl<E: Engine, W: Workload> Coordinator<E, W> {
    pub(super) fn new(
        shared: &Rc<Shared<E, W>>,
        worker: &Worker,
        number: usize,
        log: Recorder,
    ) -> Self {
        let number = number as u64;
        // Far from each other, whatever the seeds are.
        let seed = shared.plan.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (number + 1) << 20;
        Coordinator {
            shared: Rc::clone(shared),
            worker: worker.clone(),
            number,
            random: Random::new(seed),
            log,
            open: Rc::default(),
            rows: Rows::default(),
            numbers: 0..0,
            untold: Untold { control: Arc::clone(&shared.control), commits: 0 },
        }
    }

    /// The number of its next attempt: no other has the same.
    fn next_number(&mut self) -> u64 {
        if self.numbers.is_empty() {
            let first = self.shared.control.attempts.fetch_add(AT_ONCE, Ordering::Relaxed) + 1;
            self.numbers = first..first + AT_ONCE;
        }
        self.numbers.start += 1;
        self.numbers.start - 1
    }

    /// What is left to be written down if this does not come to its end.
    pub(super) fn desk(&self) -> Desk<W> {
        let (open, log) = (Rc::clone(&self.open), self.log.clone());
        Desk { open, log, number: self.number, workload: Arc::clone(&self.shared.workload) }
    }

    pub(super) async fn run(mut self) -> Result<(), Failure> {
        let shared = Rc::clone(&self.shared);
        let mut session = shared.engine.session(&self.worker);
        let mut arrival = shared.begin;
        loop {
            arrival = match shared.plan.rate {
                Some(rate) => self.next_arrival(arrival, rate),
                None => self.worker.now(),
            };
            if let Until::Time(span) = shared.plan.until {
                if arrival - shared.begin >= span {
                    return Ok(());
                }
                // What arrived in time is served, for as long again: who waits longest counts, too.
                let waits = shared.plan.rate.is_some();
                if waits && self.worker.now() - shared.begin >= 2 * span {
                    self.give_up(span.saturating_sub(arrival - shared.begin));
                    return Ok(());
                }
            }
            if shared.plan.rate.is_some() {
                self.worker.sleep_until(arrival).await;
            }
            if !shared.control.next(&shared.plan) {
                return Ok(());
            }
            // Others have their turn, however fast the store is.
            self.worker.yield_now().await;
            let done = self.transact(&mut session, arrival).await;
            if done == Err(Failure::Over) {
                return Ok(());
            }
            if let Err(broken) = done {
                // Nobody goes on when one cannot.
                shared.control.stop.store(true, Ordering::Relaxed);
                return Err(broken);
            }
        }
    }

    /// More arrives than can be served: about how much is left of a time.
    fn give_up(&self, left: Duration) {
        let plan = &self.shared.plan;
        let rate = plan.rate.unwrap_or(0.0) / (plan.threads * plan.coordinators) as f64;
        self.shared.tally.borrow_mut().unserved += 1 + (rate * left.as_secs_f64()) as u64;
    }

    /// As if each coordinator had customers that do not wait for each other.
    fn next_arrival(&mut self, last: Time, rate: f64) -> Time {
        let plan = &self.shared.plan;
        let mean = 1e9 * (plan.threads * plan.coordinators) as f64 / rate;
        let unit = (1 + (self.random.draw() >> 12)) as f64 / (1u64 << 52) as f64;
        last + Duration::from_nanos((-unit.ln() * mean) as u64)
    }

    /// One transaction, again and again until it is over.
    async fn transact(&mut self, session: &mut E::Session, arrival: Time) -> Result<(), Failure> {
        let shared = Rc::clone(&self.shared);
        let (kind, input) = shared.workload.draw(&mut self.random);
        let before = session.effort();
        // Clocks are read only for those who want to know.
        let listens = self.log.listens();
        let time = |worker: &Worker| if listens { shared.engine.now(worker) } else { 0 };
        for tries in 0..MOST_TRIES {
            let (begin, begun) = (time(&self.worker), self.worker.now());
            let id = self.next_number();
            let open = Open { id, begin, input: input.clone(), effect: Effect::default() };
            *self.open.borrow_mut() = Some(open);
            let result = self.attempt(session, &input).await;
            *self.open.borrow_mut() = None;
            let (ended, end) = (self.worker.now(), time(&self.worker));
            let (outcome, commit_ts) = match &result {
                Ok((_, time)) => (Outcome::Committed, *time),
                Err((Failure::Unknown, _)) => (Outcome::Unknown, None),
                Err((Failure::Conflict | Failure::Over, _)) => (Outcome::Aborted, None),
                Err(_) => (Outcome::Unknown, None),
            };
            self.log.end(&Ended { id, proc: self.number, begin, end, outcome, commit_ts });
            let effect = match result {
                Err((failure @ (Failure::Broken(_) | Failure::Over), _)) => return Err(failure),
                Ok((effect, _)) | Err((_, effect)) => effect,
            };
            shared.workload.book(&input, effect, outcome);
            let span = (arrival, ended);
            self.count(kind, outcome, span, tries, before, session.effort());
            let over = outcome != Outcome::Aborted || shared.plan.drops;
            if over || shared.control.stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            // As long as an attempt takes, and longer each time.
            let took = (ended - begun).as_nanos() as u64;
            let most = (took.max(1000) << tries.min(8)).min(LONGEST_BACKOFF);
            self.worker.sleep(Duration::from_nanos(self.random.below(most))).await;
        }
        Err(Failure::Broken(format!("a transaction did not commit in {MOST_TRIES} attempts")))
    }

    /// One attempt; if it failed, with what it would have changed.
    async fn attempt(
        &mut self,
        session: &mut E::Session,
        input: &W::Input,
    ) -> Result<(Effect, Option<u64>), (Failure, Effect)> {
        let none = |failure| (failure, Effect::default());
        let begun = session.begin().await.map_err(none)?;
        let mut tx = Tx::new(begun, &mut self.log, &mut self.rows);
        let effect = self.shared.workload.attempt(&mut tx, input).await.map_err(none)?;
        if let Some(open) = &mut *self.open.borrow_mut() {
            open.effect = effect;
        }
        let time = tx.commit().await.map_err(|failure| (failure, effect))?;
        Ok((effect, time))
    }

    fn count(
        &mut self,
        kind: usize,
        outcome: Outcome,
        (arrival, now): (Time, Time),
        tries: u32,
        before: Effort,
        after: Effort,
    ) {
        if outcome == Outcome::Committed {
            self.untold.count();
        }
        let shared = &self.shared;
        let mut tally = shared.tally.borrow_mut();
        if now - shared.begin < shared.plan.warmup {
            tally.uncounted += u64::from(outcome == Outcome::Committed);
            return;
        }
        tally.most_tries = tally.most_tries.max(tries + 1);
        let kind = &mut tally.kinds[kind];
        match outcome {
            Outcome::Committed => {
                kind.committed += 1;
                kind.round_trips += after.round_trips - before.round_trips;
                kind.waited += u64::from(after.waits > before.waits);
                kind.hopped += u64::from(after.hops > before.hops);
                kind.waited_ns += after.waited_ns - before.waited_ns;
                kind.latencies.saturating_record((now - arrival.min(now)).as_nanos() as u64);
            }
            Outcome::Aborted => kind.aborted += 1,
            Outcome::Unknown => kind.unknown += 1,
        }
    }
}

/// What a coordinator was at, for whoever writes that down when it is dead.
pub(super) struct Desk<W: Workload> {
    open: Rc<RefCell<Option<Open<W::Input>>>>,
    log: Recorder,
    number: u64,
    workload: Arc<W>,
}

impl<W: Workload> Desk<W> {
    /// It will not end what it is at: nobody knows how that ended. Whether there was something.
    pub(super) fn clear(mut self, end: u64) -> bool {
        let open = self.open.borrow_mut().take();
        if let Some(Open { id, begin, input, effect }) = &open {
            let (outcome, begin, commit_ts) = (Outcome::Unknown, *begin, None);
            self.log.end(&Ended { id: *id, proc: self.number, begin, end, outcome, commit_ts });
            self.workload.book(input, *effect, outcome);
        }
        self.log.close();
        open.is_some()
    }
}
