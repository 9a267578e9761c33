//! A session: a client process as a member of the pool.
//!
//! It beats in its line of the table at home, learns and acknowledges configurations, and takes over
//! when the manager is silent.

mod takeover;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;

use farside_fabric::runtime::Task;
use farside_fabric::{ClientId, Time, Worker, probe};

use crate::config::{Config, Node};
use crate::contest::Contest;
use crate::control::{Announcement, MANAGER, Signs, grant, session};
use crate::links::{Connect, Links};
use crate::listen::{is_managed, listen, read_config};
use crate::manager::{Beginning, Manager};
use crate::petition::{Newcomer, Petition};
use crate::store::{ConfigStore, Reader, StoreError};
use crate::terms::Terms;
use crate::time;
use crate::view::View;

/// What a session needs of its process.
#[derive(Clone)]
pub struct Means {
    /// The thread that it lives on.
    pub worker: Worker,
    /// Under which id its process is fenced.
    pub client: ClientId,
    /// Where configurations are kept.
    pub store: Rc<dyn ConfigStore>,
    /// How nodes are reached.
    pub connect: Rc<dyn Connect>,
    /// For tests: a rule that it does not follow as a manager.
    pub left_out: Option<LeftOut>,
    /// For tests: it contests the office of a manager that is only late.
    pub eager: bool,
}

/// A rule of managers that tests leave out, to see what it is good for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LeftOut {
    /// The silence of a node is not taken for its death, if the last copy of something would be lost with it.
    LastCopy,
    /// A configuration that is contested is no evidence of the office.
    Contest,
}

/// Why a session has ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ended {
    /// It was put out of the pool, and its verbs have no effect any more.
    PutOut,
    /// The store has something else.
    Foreign(String),
}

/// A client process in the pool.
pub struct Member {
    means: Means,
    terms: Terms,
    view: Arc<View>,
    links: Links,
    reader: Reader,
    beat: Cell<u64>,
    echo: Cell<u64>,
    /// When the beat was read that is echoed.
    echo_read_at: Cell<Time>,
    /// When home last answered.
    home_heard_at: Cell<Time>,
    contest: Rc<Contest>,
    /// When the store is looked at next, without a lease.
    next_look: Cell<Time>,
    /// Beats that wait for a grant, and when each was sent.
    sent: RefCell<VecDeque<(u64, Time)>>,
    /// The manager's beats as last seen on each node, and when they last changed.
    silence: RefCell<BTreeMap<u16, (u64, Time)>>,
    manager: RefCell<Option<Manager>>,
    /// Until then nobody is missed: this session, or the manager, is new.
    hopeful_until: Cell<Time>,
    /// Follows the pool's time.
    _following: Task<()>,
}

impl Member {
    /// Makes a new pool of these nodes and these regions (their bytes and copies), with this session as the
    /// manager. `None` if there is a pool already.
    pub async fn found(
        means: Means,
        terms: Terms,
        nodes: &[Newcomer],
        regions: &[(u64, usize)],
    ) -> Result<Option<Self>, StoreError> {
        let mut config = Config::first(means.client, terms.lease);
        for node in nodes {
            config.add_node(node);
        }
        for (bytes, copies) in regions {
            let placed = config.add_region(*bytes, *copies, crate::CONTROL_BYTES);
            placed.ok_or_else(|| {
                StoreError::Foreign("too few nodes with room for the copies".into())
            })?;
        }
        let stored = means.store.read(0).await?;
        let start = means.worker.now();
        if stored.revision != 0 || !means.store.swap(0, &config.encode()).await? {
            return Ok(None);
        }
        let member = Self::new(means, terms, config.clone());
        let begin =
            Beginning { confirmed: start, safe_after: member.means.worker.now(), silent: None };
        member.become_manager(config, begin);
        Ok(Some(member))
    }

    /// Joins a pool. Waits until the manager has taken this process in; if there is no manager left,
    /// this one takes over.
    pub async fn join(means: Means) -> Result<Self, StoreError> {
        let mut asked_at: Option<(Time, u64)> = None;
        loop {
            let worker = &means.worker;
            let stored = means.store.read(0).await;
            let newest = match stored.as_ref().map(|stored| stored.config.as_deref()) {
                Ok(Some(bytes)) => Config::decode(bytes).map_err(StoreError::Foreign)?,
                // No pool yet, or the store is away for a while.
                Ok(None) | Err(StoreError::Unreachable(_)) => {
                    worker.sleep(std::time::Duration::from_millis(1)).await;
                    continue;
                }
                Err(error) => return Err(error.clone()),
            };
            let terms = Terms::new(std::time::Duration::from_nanos(newest.lease_ns));
            if newest.session(means.client.0).is_some() {
                return Ok(Self::new(means, terms, newest));
            }
            let now = worker.now();
            match asked_at {
                Some((since, epoch)) if epoch == newest.epoch => {
                    // Whoever manages would have answered by now.
                    let patience = terms.store_age() + 4 * terms.lease;
                    let revision = stored.map_or(0, |stored| stored.revision);
                    if now - since > patience {
                        if is_managed(&means, &terms, &newest).await {
                            asked_at = None;
                            continue;
                        }
                        probe!("a stranger takes over a pool without a manager");
                        return Self::revive(means, terms, newest, revision).await;
                    }
                }
                _ => {
                    let petition = Petition::Session { client: means.client.0 };
                    let asked = means.store.petition(&petition.key(), &petition.encode()).await;
                    asked_at = asked.is_ok().then_some((now, newest.epoch));
                }
            }
            worker.sleep(terms.tick()).await;
        }
    }

    /// Takes over a pool that nobody manages.
    async fn revive(
        means: Means,
        terms: Terms,
        newest: Config,
        revision: u64,
    ) -> Result<Self, StoreError> {
        let mut next = newest.next();
        next.manager = means.client.0;
        next.add_session(means.client.0);
        let start = means.worker.now();
        let swapped = means.store.swap(revision, &next.encode()).await;
        if swapped != Ok(true) {
            return Box::pin(Self::join(means)).await;
        }
        let safe_after = means.worker.now() + terms.stranger() + terms.takeover();
        let member = Self::new(means, terms, next.clone());
        member.become_manager(next, Beginning { confirmed: start, safe_after, silent: None });
        Ok(member)
    }

    fn new(means: Means, terms: Terms, config: Config) -> Self {
        let links = Links::new(&means.worker, &means.connect);
        // Grants for whoever had the place in the table before are none for this session.
        let first = config.session(means.client.0).map_or(0, |me| me.serial << 40);
        let view = Arc::new(View::new(config));
        let (connect, known) = (Rc::clone(&means.connect), Arc::downgrade(&view));
        let following = means.worker.spawn(time::follow(means.worker.clone(), connect, known));
        Member {
            terms,
            links,
            reader: Reader::new(&means.store),
            beat: Cell::new(first),
            echo: Cell::new(0),
            echo_read_at: Cell::new(means.worker.now()),
            home_heard_at: Cell::new(means.worker.now()),
            contest: Rc::default(),
            next_look: Cell::new(Time(0)),
            sent: RefCell::default(),
            silence: RefCell::default(),
            manager: RefCell::default(),
            hopeful_until: Cell::new(means.worker.now() + 2 * terms.lease),
            view,
            _following: following,
            means,
        }
    }

    /// What this process knows of the pool.
    pub fn view(&self) -> Arc<View> {
        Arc::clone(&self.view)
    }

    /// Whether this session is the manager, as far as it knows.
    pub fn manages(&self) -> bool {
        self.manager.borrow().as_ref().is_some_and(|manager| !manager.is_retired())
    }

    fn become_manager(&self, config: Config, begin: Beginning) {
        let view = Arc::clone(&self.view);
        let manager = Manager::start(&self.means, self.terms, view, config, begin);
        *self.manager.borrow_mut() = Some(manager);
    }

    /// Keeps the session alive, until it is put out.
    pub async fn run(&self) -> Ended {
        loop {
            let config = self.view.config();
            let Some(me) = config.session(self.means.client.0) else {
                self.view.put_out();
                return Ended::PutOut;
            };
            self.hand_in_wishes();
            let heard = match config.node(config.home) {
                Some(home) => self.soon(home, self.renew(&config, home, me.slot)).await,
                None => None,
            };
            if let Some(heard) = heard {
                self.view.counts(heard.counting);
                if heard.announced > config.epoch {
                    self.learn_from(&config, config.home, heard.announced).await;
                }
            }
            let (now, lease_end) = (self.means.worker.now(), self.view.valid_until());
            let lost_home = heard.is_none() && self.links.cannot_reach(config.home);
            // Late answers are no reason for that: the store would hear of little else.
            let late = self.means.eager && now + self.terms.lease / 4 > lease_end;
            if (lost_home || late) && self.misses_manager() {
                self.contest.begin(&self.means.worker, &self.means.store, &config, lease_end);
            }
            if (lost_home || now >= lease_end)
                && let Err(foreign) = self.look_around(&config, heard.is_some()).await
            {
                return Ended::Foreign(foreign);
            }
            let now = self.means.worker.now();
            let calm = heard.is_some_and(|heard| heard.announced == heard.counting)
                && self.view.valid_until() > now + self.terms.lease / 2;
            match calm {
                true => self.means.worker.next_tick(self.terms.calm_tick()).await,
                false => self.means.worker.sleep(self.terms.tick()).await,
            }
        }
    }

    /// Hands in what threads of this process ask for; beats do not wait for that.
    fn hand_in_wishes(&self) {
        for petition in self.view.take_wishes() {
            let (store, what) = (Rc::clone(&self.means.store), petition.encode());
            let key = petition.key();
            self.means.worker.spawn(async move { _ = store.petition(&key, &what).await }).detach();
        }
    }

    /// A node that does not answer soon is not waited for.
    async fn soon<T>(&self, node: &Node, future: impl Future<Output = Option<T>>) -> Option<T> {
        self.links.within(self.terms.answer(), node, future).await.flatten()
    }

    /// Beats at home, and looks whether an earlier beat was granted.
    async fn renew(&self, config: &Config, home: &Node, slot: u16) -> Option<Announcement> {
        let queue = self.links.to(home).await?;
        let worker = &self.means.worker;
        let now = worker.now();
        let beat = self.beat.get() + 1;
        self.beat.set(beat);
        self.sent.borrow_mut().push_back((beat, now));
        // The acknowledgement first: whoever has given out a time before that has done so when the latest is reckoned.
        let acknowledged = self.view.settled();
        let time = self.view.time();
        let signs = Signs {
            beat,
            echo: self.echo.get(),
            acknowledged,
            latest: time.reckon(worker.now().0).unwrap_or(0),
            drift_ppb: time.drift_ppb(),
            uncertainty: time.bounds(worker).map_or(u64::MAX, |(lower, upper)| upper - lower),
            client: self.means.client.0,
        };
        let mut round = worker.round();
        let mut bell = round.to(&queue);
        bell.write(session(slot), &signs.words());
        let granted = bell.read(grant(slot), 8);
        let manager = bell.read(MANAGER, Announcement::WORDS * 8);
        let done = round.ring().await.ok()?;
        let (granted, heard) = (done[granted][0], Announcement::from_words(&done[manager]));
        drop(done);
        self.note_grant(granted);
        let heard = heard?;
        self.home_heard_at.set(worker.now());
        if heard.manager == config.manager {
            if self.echo.replace(heard.beat) != heard.beat {
                self.echo_read_at.set(worker.now());
            }
        } else {
            // One that was deposed and does not know it: an echo would keep it in office.
            probe!("a session hears a manager that is none any more");
        }
        self.note_beat(home.id, heard.beat);
        Some(heard)
    }

    /// A beat was granted: the lease counts from when it was sent.
    fn note_grant(&self, granted: u64) {
        let mut sent = self.sent.borrow_mut();
        while sent.front().is_some_and(|(beat, _)| *beat < granted) {
            sent.pop_front();
        }
        if let Some((_, since)) = sent.front().filter(|(beat, _)| *beat == granted) {
            self.view.extend(*since + self.terms.lease);
        }
    }

    /// Remembers when the manager was last heard at a node.
    fn note_beat(&self, node: u16, beat: u64) {
        let now = self.means.worker.now();
        let mut silence = self.silence.borrow_mut();
        let known = silence.entry(node).or_insert((beat, now));
        if known.0 != beat {
            *known = (beat, now);
        }
    }

    /// Reads a configuration from a node, and makes it ours.
    async fn learn_from(&self, known: &Config, node: u16, epoch: u64) {
        let Some(node) = known.node(node) else { return };
        let reading = async {
            let queue = self.links.to(node).await?;
            read_config(&self.means.worker, &queue, epoch).await
        };
        if let Some(config) = self.soon(node, reading).await {
            self.learn(config);
        }
    }

    fn learn(&self, config: Config) {
        self.links.keep(&config.nodes);
        self.silence.borrow_mut().retain(|id, _| config.node(*id).is_some());
        if config.manager != self.view.config().manager {
            // A new manager needs a moment before it is heard.
            self.silence.borrow_mut().clear();
            self.hopeful_until.set(self.means.worker.now() + self.terms.lease / 2);
        }
        // Whoever acts by the old configuration stops; then it is acknowledged, with the next beat.
        self.view.learn(config);
    }

    /// Whether the manager may be gone, as far as this session can say so: one who manages itself, or never had a lease, cannot.
    fn misses_manager(&self) -> bool {
        !self.manages() && !self.never_had_a_lease()
    }

    /// Without a lease, or without a home: is there a newer configuration, or no manager?
    async fn look_around(&self, config: &Config, home_answers: bool) -> Result<(), String> {
        let mut reached = Vec::new();
        if home_answers {
            reached.push(config.home);
        }
        for node in config.nodes.iter().filter(|node| node.id != config.home) {
            let listening = listen(&self.means.worker, &self.links, node);
            if let Some(heard) = self.soon(node, listening).await {
                reached.push(node.id);
                self.note_beat(node.id, heard.beat);
                if heard.announced > config.epoch {
                    self.learn_from(config, node.id, heard.announced).await;
                    return Ok(());
                }
            }
        }
        let now = self.means.worker.now();
        if now < self.view.valid_until() {
            return Ok(());
        }
        probe!("a session looks around without a lease");
        match self.is_time_to_take_over(config, &reached) {
            true => self.take_over(config, *reached.first().unwrap_or(&config.home)).await,
            false if now < self.next_look.get() => Ok(()),
            false => {
                self.next_look.set(now + self.terms.age());
                self.look_at_store(config).await.map(drop)
            }
        }
    }

    fn never_had_a_lease(&self) -> bool {
        self.view.valid_until() == Time(0)
    }

    /// Learns what the store has; its revision, if that is nothing new.
    async fn look_at_store(&self, config: &Config) -> Result<Option<u64>, String> {
        let stored = match self.reader.read(&self.means.worker, self.terms.answer()).await {
            Some(Ok(stored)) => stored,
            None | Some(Err(StoreError::Unreachable(_))) => return Ok(None),
            Some(Err(StoreError::Foreign(why))) => return Err(why),
        };
        let newest = Config::decode(stored.config.as_deref().unwrap_or_default())?;
        if newest.epoch > config.epoch {
            probe!("a session learns a configuration from the store");
            self.learn(newest);
            return Ok(None);
        }
        Ok(Some(stored.revision))
    }
}
