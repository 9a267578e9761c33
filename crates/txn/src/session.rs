//! A session: what the threads of a process share.
//!
//! Two things are told to all other sessions: the oldest snapshot that anybody here may still read, and since
//! when nobody here uses old addresses. Threads note theirs in words of their own, and whoever looks at the board
//! tells the least of them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use farside_fabric::Worker;
use farside_pool::alloc::FREED;
use farside_pool::{Addr, Config, Links, MAX_SESSIONS, Replica};

use crate::queues::replicas;
use crate::turns::Turns;
use crate::words::OWNERS;
use crate::{TxnError, agent, system};

/// A thread that reads no snapshot, or runs no transaction.
pub(crate) const IDLE: u64 = u64::MAX;

/// Owners of locks that a session has: its threads are numbered from 1 below this.
const THREADS: u16 = 16;

const _: () = assert!(MAX_SESSIONS as u16 <= OWNERS / THREADS);

/// Sizes that a session chooses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// How long the record ring of a thread is in each region that it writes to.
    pub ring_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { ring_bytes: 192 << 10 }
    }
}

/// Who a session is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    /// Its place on the board.
    pub slot: u16,
    /// Its number, which no other session ever has.
    pub serial: u64,
}

/// What the threads of a process share.
#[derive(Debug)]
pub struct Session {
    pub(crate) identity: Identity,
    pub(crate) limits: Limits,
    pub(crate) turns: Arc<Turns>,
    threads: Mutex<Threads>,
    /// No snapshot is read that is older.
    pub(crate) horizon: AtomicU64,
    /// Addresses that were learned before are not used here any more.
    floor: AtomicU64,
    /// The same of all sessions.
    pub(crate) settled_floor: AtomicU64,
    /// Others know which snapshots are read here.
    pub(crate) told: AtomicBool,
    /// Places on the board that are looked at.
    pub(crate) sessions: AtomicU64,
    /// What is to be freed once no snapshot is older than a time.
    pub(crate) limbo: Mutex<Vec<(u64, Addr)>>,
}

#[derive(Debug, Default)]
struct Threads {
    active: Vec<Arc<Noted>>,
    vacant: Vec<Vacancy>,
    next: u16,
}

/// What a thread notes, in lines of its own: it does so in every transaction.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Noted {
    /// The oldest snapshot that it reads.
    pub(crate) oldest: AtomicU64,
    /// Since when the addresses are that its oldest transaction uses.
    pub(crate) floor: AtomicU64,
}

/// The place of a thread that has ended, for the next one.
#[derive(Clone, Debug)]
pub(crate) struct Vacancy {
    /// From 1.
    pub(crate) thread: u16,
    /// Of its last lock.
    pub(crate) last_tick: u64,
    /// Its record rings, and until when they are needed.
    pub(crate) rings: Vec<(Addr, u64)>,
}

impl Session {
    /// The session of this process.
    pub fn new(identity: Identity, limits: Limits) -> Arc<Self> {
        assert!(usize::from(identity.slot) < MAX_SESSIONS, "a place on the board");
        Arc::new(Session {
            identity,
            limits,
            turns: Turns::new(),
            threads: Mutex::default(),
            horizon: AtomicU64::new(0),
            floor: AtomicU64::new(0),
            settled_floor: AtomicU64::new(0),
            told: AtomicBool::new(false),
            sessions: AtomicU64::new(0),
            limbo: Mutex::default(),
        })
    }

    fn threads(&self) -> MutexGuard<'_, Threads> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a thread; `None` if there are too many.
    pub(crate) fn enter(&self) -> Option<(Vacancy, Arc<Noted>)> {
        let mut threads = self.threads();
        let vacancy = threads.vacant.pop();
        let vacancy = vacancy.or_else(|| {
            threads.next += 1;
            let vacancy = Vacancy { thread: threads.next, last_tick: 0, rings: Vec::new() };
            (vacancy.thread < THREADS).then_some(vacancy)
        })?;
        let noted = Arc::new(Noted { oldest: AtomicU64::new(IDLE), floor: AtomicU64::new(IDLE) });
        threads.active.push(Arc::clone(&noted));
        Some((vacancy, noted))
    }

    /// A thread ends. Its place is used again if it left nothing behind.
    pub(crate) fn leave(&self, noted: &Arc<Noted>, vacancy: Option<Vacancy>) {
        let mut threads = self.threads();
        threads.active.retain(|known| !Arc::ptr_eq(known, noted));
        threads.vacant.extend(vacancy);
    }

    /// The name of a thread in lock words.
    pub(crate) fn lock_owner(&self, thread: u16) -> u16 {
        self.identity.slot * THREADS + thread
    }

    /// The oldest snapshot that is read here, or may be read next by somebody whose clock says that it is later
    /// than `now`. Whoever enters notes a bound first, and takes its snapshot then: it is not older than
    /// `now` if the note is not seen here.
    pub(crate) fn oldest(&self, now: u64) -> u64 {
        let threads = self.threads();
        let noted = threads.active.iter().map(|noted| noted.oldest.load(Ordering::SeqCst));
        noted.min().unwrap_or(IDLE).min(now)
    }

    /// Addresses that were learned before this are not used any more by transactions that begin.
    #[inline]
    pub(crate) fn floor(&self) -> u64 {
        self.floor.load(Ordering::SeqCst)
    }

    /// Forgets addresses that were learned before; since when all transactions here have.
    pub(crate) fn raise_floor(&self, floor: u64) -> u64 {
        self.floor.fetch_max(floor, Ordering::SeqCst);
        let threads = self.threads();
        let noted = threads.active.iter().map(|noted| noted.floor.load(Ordering::SeqCst));
        noted.min().unwrap_or(IDLE).min(self.floor())
    }

    pub(crate) fn limbo(&self) -> MutexGuard<'_, Vec<(u64, Addr)>> {
        self.limbo.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Identity {
    /// Claims a place on the board of a pool that has no manager, under an id that nobody else has.
    pub async fn claim(
        worker: &Worker,
        links: &Links,
        config: &Config,
        client: u64,
    ) -> Result<Self, TxnError> {
        let queues = agent::connect(links, config).await?;
        agent::prepare(worker, &queues, config).await?;
        let copies = replicas(config, system::catalog_root())?;
        let Replica { node, base } = copies[0];
        let primary = queues.to(node)?;
        let mut round = worker.round();
        let serial = round.to(primary).faa(base + system::SERIALS, 1);
        let claims = round.to(primary).read(base + system::claim(0), MAX_SESSIONS * 8);
        let done = round.ring().await?;
        let (serial, claims) = (done[serial] + 1, done[claims].to_vec());
        drop(done);
        for slot in (0..MAX_SESSIONS as u16).filter(|slot| claims[usize::from(*slot)] == 0) {
            let mut round = worker.round();
            let found = round.to(primary).cas(base + system::claim(slot), 0, client);
            if round.ring().await?[found] == 0 {
                return Ok(Identity { slot, serial });
            }
        }
        Err(TxnError::Refused("the database has as many processes as it can".into()))
    }
}

impl Session {
    /// Gives back what the session has in a pool that has no manager, when all its threads have ended.
    pub async fn retire(
        &self,
        worker: &Worker,
        links: &Links,
        config: &Config,
    ) -> Result<(), TxnError> {
        let queues = agent::connect(links, config).await?;
        let rings: Vec<(Addr, u64)> =
            self.threads().vacant.drain(..).flat_map(|vacancy| vacancy.rings).collect();
        let horizon = self.horizon.load(Ordering::Acquire);
        // Records that somebody may still read stay: their places are lost.
        for (ring, _) in rings.into_iter().filter(|(_, busy)| *busy < horizon) {
            let mut round = worker.round();
            for replica in replicas(config, ring)? {
                round.to(queues.to(replica.node)?).write(replica.base + ring.offset(), &[0]);
            }
            round.ring().await?;
        }
        let limbo = std::mem::take(&mut *self.limbo());
        for (_, addr) in limbo.into_iter().filter(|(time, _)| *time < horizon) {
            let mut round = worker.round();
            for replica in replicas(config, addr)? {
                let at = replica.base + addr.offset();
                round.to(queues.to(replica.node)?).cas(at, crate::object::IN_USE, FREED);
            }
            round.ring().await?;
        }
        let serial = self.identity.serial;
        for place in config.regions.iter().filter_map(|region| queues.place(region)) {
            place.disown(worker, &|owner| owner >> 10 == serial).await?;
        }
        let mut round = worker.round();
        for replica in replicas(config, system::catalog_root())? {
            let mut bell = round.to(queues.to(replica.node)?);
            bell.write(replica.base + system::line(self.identity.slot), &[0, 0]);
            bell.write(replica.base + system::claim(self.identity.slot), &[0]);
        }
        round.ring().await?;
        Ok(())
    }
}
