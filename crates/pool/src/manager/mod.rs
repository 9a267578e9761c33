//! The manager of a pool: it grants leases, and makes the changes of the configuration.
//!
//! It is one of the sessions, and does everything with verbs and the store:
//!
//! | task | every tick |
//! | --- | --- |
//! | [`watch`]: one per node | write the announcement and the node's grant, read the node's beat |
//! | [`table`]: the home node | write grants, read the signs of all sessions |
//! | [`office`]: the store | confirm that this still is the manager, hear petitions |
//! | [`change`] | put out who lapsed, take in who asks, say what counts |
//! | [`clock`] | let time go on when another node has the clock |
//! | [`greet`] | see which of the nodes that ask answer |
//! | [`sweep`] | what the dead owned becomes nobody's |

mod change;
mod clock;
mod greet;
mod office;
mod record;
mod sweep;
mod table;
mod watch;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use farside_fabric::runtime::Task;
use farside_fabric::{Time, probe};

use crate::config::Config;
use crate::member::Means;
use crate::petition::Petition;
use crate::terms::Terms;
use crate::view::View;
use record::Record;

/// The manager's office; it ends when this is dropped.
pub(crate) struct Manager {
    state: Rc<State>,
    _tasks: Vec<Task<()>>,
}

/// How an office begins.
pub(crate) struct Beginning {
    /// The store named this manager at some time after that.
    pub(crate) confirmed: Time,
    /// Nothing counts before that: somebody may have a lease of an older manager.
    pub(crate) safe_after: Time,
    /// The home was lost, and perhaps the manager with it.
    pub(crate) silent: Option<Silent>,
}

/// Whom a session has missed that took over when it could not reach the home any more, and since when.
pub(crate) struct Silent {
    pub(crate) manager: (u64, Time),
    pub(crate) home: (u16, Time),
}

/// What all its tasks know.
struct State {
    means: Means,
    terms: Terms,
    /// What this process knows of the pool.
    view: Arc<View>,
    /// The newest configuration, and the store's revision of it.
    config: RefCell<Config>,
    revision: Cell<u64>,
    counting: Cell<u64>,
    /// Since when members could know the newest configuration.
    announced_at: Cell<Time>,
    /// When this office began.
    began: Time,
    /// Before that, somebody may have a lease of an older manager.
    safe_after: Cell<Time>,
    /// Before that, somebody whom this manager has put out may have a lease.
    leases_end: Cell<Time>,
    /// Since when the table of sessions could be read, every time.
    table_since: Cell<Option<Time>>,
    /// Counts up; sessions echo it.
    beat: Cell<u64>,
    /// When each beat was sent.
    beats: RefCell<VecDeque<(u64, Time)>>,
    /// When the store was last known to name this manager.
    confirmed: Cell<Time>,
    nodes: RefCell<BTreeMap<u16, Record>>,
    sessions: RefCell<BTreeMap<u64, Record>>,
    petitions: RefCell<Vec<(String, Petition)>>,
    /// Nodes among those that ask which answer, by their lives; and petitions of those that do not.
    reachable: RefCell<BTreeSet<u64>>,
    hopeless: RefCell<BTreeSet<String>>,
    /// Sessions that are being put out.
    leaving: RefCell<BTreeSet<u64>>,
    /// Fences that are done, as node and client.
    fences: RefCell<BTreeSet<(u16, u64)>>,
    /// Since when somebody's clock drifts too much.
    drift_since: Cell<Option<Time>>,
    /// Since when copies are whole that were not taken in yet.
    whole_since: Cell<Option<Time>>,
    retired: Cell<bool>,
    /// The manager before this one, if it was lost with the home.
    deposed: Option<u64>,
}

impl Manager {
    /// Takes office with a configuration that is in the store.
    pub(crate) fn start(
        means: &Means,
        terms: Terms,
        view: Arc<View>,
        config: Config,
        begin: Beginning,
    ) -> Self {
        let now = means.worker.now();
        let state = Rc::new(State {
            means: means.clone(),
            terms,
            view,
            config: RefCell::new(config),
            revision: Cell::new(0),
            counting: Cell::new(0),
            announced_at: Cell::new(now),
            began: now,
            safe_after: Cell::new(begin.safe_after),
            leases_end: Cell::new(Time(0)),
            table_since: Cell::new(None),
            beat: Cell::new(means.worker.random() >> 8),
            beats: RefCell::default(),
            confirmed: Cell::new(begin.confirmed),
            deposed: begin.silent.as_ref().map(|silent| silent.manager.0),
            nodes: RefCell::default(),
            sessions: RefCell::default(),
            petitions: RefCell::default(),
            reachable: RefCell::default(),
            hopeless: RefCell::default(),
            leaving: RefCell::default(),
            fences: RefCell::default(),
            drift_since: Cell::new(None),
            whole_since: Cell::new(None),
            retired: Cell::new(false),
        });
        state.meet_members();
        if let Some(silent) = begin.silent {
            state.miss(&silent);
        }
        let spawn = |state: &Rc<State>| {
            let worker = &state.means.worker;
            vec![
                worker.spawn(watch::watch_all(Rc::clone(state))),
                worker.spawn(table::read_signs(Rc::clone(state))),
                worker.spawn(office::hold(Rc::clone(state))),
                worker.spawn(change::decide(Rc::clone(state))),
                worker.spawn(change::feel_pulse(Rc::clone(state))),
                worker.spawn(greet::greet(Rc::clone(state))),
                worker.spawn(sweep::sweep(Rc::clone(state))),
            ]
        };
        let tasks = spawn(&state);
        Manager { state, _tasks: tasks }
    }

    /// Whether another manager is known.
    pub(crate) fn is_retired(&self) -> bool {
        self.state.retired.get()
    }
}

impl State {
    fn now(&self) -> Time {
        self.means.worker.now()
    }

    async fn tick(&self) {
        let worker = &self.means.worker;
        if self.is_calm() {
            worker.next_tick(self.terms.calm_tick()).await;
        } else if self.is_waited_for() {
            worker.sleep(self.terms.brisk_tick()).await;
        } else {
            worker.sleep(self.terms.tick()).await;
        }
    }

    /// Whether everybody waits for the first time of this office, after the clock was lost.
    fn is_waited_for(&self) -> bool {
        let now = self.now();
        let lost = self.deposed.is_some() && self.config.borrow().master.is_none();
        lost && now - self.began.min(now) < 2 * self.terms.lease
    }

    /// How long sessions have to find this manager.
    fn welcome(&self) -> std::time::Duration {
        if self.deposed.is_some() { self.terms.brief_welcome() } else { self.terms.welcome() }
    }

    /// Whether the newest configuration counts, and everybody was heard of late.
    fn is_calm(&self) -> bool {
        let now = self.now();
        let heard = |record: &Record| record.was_heard(now, &self.terms);
        self.counting.get() == self.config.borrow().epoch
            && self.nodes.borrow().values().all(heard)
            && self.sessions.borrow().values().all(heard)
    }

    /// Makes a record for every member, and forgets those of others.
    fn meet_members(&self) {
        let (now, config) = (self.now(), self.config.borrow());
        let mut nodes = self.nodes.borrow_mut();
        nodes.retain(|id, _| config.node(*id).is_some());
        for node in &config.nodes {
            nodes.entry(node.id).or_insert_with(|| Record::new(now));
        }
        let mut sessions = self.sessions.borrow_mut();
        sessions.retain(|client, _| config.session(*client).is_some());
        for session in &config.sessions {
            sessions.entry(session.client).or_insert_with(|| Record::new(now));
        }
    }

    /// Who was silent before this manager began has been silent for that much longer.
    fn miss(&self, silent: &Silent) {
        let (manager, since) = silent.manager;
        if let Some(record) = self.sessions.borrow_mut().get_mut(&manager) {
            record.silent_since(since);
        }
        let (home, since) = silent.home;
        if let Some(record) = self.nodes.borrow_mut().get_mut(&home) {
            record.silent_since(since);
        }
    }

    /// The beat to send now: a new one in every tick.
    fn next_beat(&self) -> u64 {
        let (beat, now) = (self.beat.get() + 1, self.now());
        if now - self.evidence().min(now) > self.terms.silence() {
            // A manager that cannot grant any more must not seem to be one. But not at once: while the
            // store is away, only its beats bring the echoes back that it waits for.
            probe!("a manager without evidence falls silent");
            return self.beat.get();
        }
        let mut beats = self.beats.borrow_mut();
        if beats.back().is_some_and(|(_, at)| now - (*at).min(now) < self.terms.tick() / 2) {
            // The one of this tick: sent somewhat earlier, which only makes the evidence older.
            return self.beat.get();
        }
        self.beat.set(beat);
        beats.push_back((beat, now));
        if beats.len() > 256 {
            beats.pop_front();
        }
        beat
    }

    /// When a beat was sent that somebody echoes.
    fn sent_at(&self, beat: u64) -> Option<Time> {
        let beats = self.beats.borrow();
        beats.iter().rev().find(|(known, _)| *known == beat).map(|(_, at)| *at)
    }

    /// Since when there is evidence that this is the manager (see [`crate::terms`]).
    fn evidence(&self) -> Time {
        let now = self.now();
        let confirmed = self.confirmed.get();
        if now - confirmed.min(now) > self.terms.store_age() {
            return confirmed;
        }
        let sessions = self.sessions.borrow();
        let others = sessions.iter().filter(|(client, _)| **client != self.means.client.0);
        let echoed = others.map(|(_, record)| record.echoed_at).min().unwrap_or(now);
        confirmed.max(echoed)
    }
}
