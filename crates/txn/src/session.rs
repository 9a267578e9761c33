//! A session: what the threads of a process share.
//!
//! Two things are told to all other sessions: the oldest snapshot that anybody here may still read, and since
//! when nobody here uses old addresses. Threads note theirs in words of their own, and whoever looks at the board
//! tells the least of them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use farside_pool::{Addr, MAX_SESSIONS};

use crate::turns::Turns;
use crate::words::OWNERS;

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

/// What a thread notes.
#[derive(Debug)]
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
