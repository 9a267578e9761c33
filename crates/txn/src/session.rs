//! A session: what the threads of a process share.
//!
//! Two things are told to all other sessions: the oldest snapshot that anybody here may still read, and since
//! when nobody here uses old addresses. Threads note theirs in words of their own, and whoever looks at the board
//! tells the least of them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use farside_pool::Addr;

use crate::old::{OldVersions, Outside};
use crate::protocol::{Protocol, Versions};
use crate::system::PLACES;
use crate::turns::Turns;
use crate::versions::VersionCache;
use crate::watch::Watch;
use crate::words::{Lock, OWNERS};

/// A thread that reads no snapshot, or runs no transaction.
pub(crate) const IDLE: u64 = u64::MAX;

/// Owners of locks that a session has: its threads are numbered from 1 below this.
pub(crate) const THREADS: u16 = 32;

const _: () = assert!(PLACES as u16 <= OWNERS / THREADS && THREADS.is_power_of_two());

/// Owners of slabs by this name are threads of sessions; no other sort of owner has it.
const SLAB_OWNERS: u64 = 1 << 47;

/// What a session chooses: sizes, and what it does without.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// How long the record ring of a thread is in each region that it writes to.
    pub ring_bytes: u64,
    /// How much memory old versions may take beyond the rings.
    pub old_bytes: u64,
    /// What happens when that is not enough.
    pub old_versions: OldVersions,
    /// Whether a commit is on disk when it is reported, where nodes keep what is flushed.
    pub durable: bool,
    /// How transactions go through their phases: all sessions of a pool have to agree.
    pub protocol: Protocol,
    /// Whether nobody else writes as long as this session is there: then it may have a version cache.
    pub alone: bool,
    /// How often all objects are looked at, by somebody who is there for so long; `None`: never.
    pub scrub: Option<Duration>,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            ring_bytes: 192 << 10,
            old_bytes: 64 << 20,
            old_versions: OldVersions::Block,
            durable: true,
            protocol: Protocol::default(),
            alone: false,
            scrub: Some(Duration::from_secs(3600)),
        }
    }
}

impl Limits {
    /// Follows a protocol.
    #[must_use]
    pub fn following(mut self, protocol: Protocol) -> Self {
        self.protocol = protocol;
        if !protocol.old_versions {
            self.old_versions = OldVersions::None;
        }
        self
    }

    /// Whether versions are known in the memory of the process.
    pub fn has_version_cache(&self) -> bool {
        match self.protocol.versions {
            Versions::Process => true,
            Versions::ProcessIfAlone => self.alone,
            Versions::Copies | Versions::Node | Versions::Switch => false,
        }
    }
}

/// Who a session is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    /// Its place on the board.
    pub slot: u16,
    /// The id under which its process is fenced, which no other ever has.
    pub client: u64,
    /// Whoever had the place before has locked nothing after this time.
    pub since: u64,
}

/// What the threads of a process share.
#[derive(Debug)]
pub struct Session {
    pub(crate) identity: Identity,
    pub(crate) limits: Limits,
    pub(crate) turns: Arc<Turns>,
    threads: Mutex<Threads>,
    /// No snapshot is read that is older, by anybody.
    pub(crate) horizon: AtomicU64,
    /// Old versions that have places of their own.
    pub(crate) outside: Outside,
    /// What this session has agreed to: no snapshot is begun here that is older.
    pub(crate) safe: AtomicU64,
    /// Addresses that were learned before are not used here any more.
    floor: AtomicU64,
    /// The same of all sessions.
    pub(crate) settled_floor: AtomicU64,
    /// Others know which snapshots are read here.
    pub(crate) told: AtomicBool,
    /// Places on the board that are looked at.
    pub(crate) sessions: AtomicU64,
    /// What is to be freed once no snapshot is older than a time.
    limbo: Mutex<Vec<Limbo>>,
    /// Since when its place is its own: it locks nothing by a name of before. 0 until its first thread joins.
    pub(crate) since: AtomicU64,
    /// Changes as long as somebody here lives.
    pub(crate) beat: AtomicU64,
    /// What is known of the others.
    pub(crate) watch: Watch,
    /// It was taken for dead: nothing that it does has any effect.
    pub(crate) fenced: AtomicBool,
    /// What is known of versions, where that is used.
    pub(crate) versions: Option<Arc<VersionCache>>,
}

/// Something that is freed when no snapshot is older than a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Limbo {
    pub(crate) time: u64,
    pub(crate) addr: Addr,
    /// Its first word.
    pub(crate) header: u64,
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
        Self::sharing(identity, limits, limits.has_version_cache().then(Arc::default))
    }

    /// The same with a version cache that others have, too.
    pub fn sharing(
        identity: Identity,
        limits: Limits,
        versions: Option<Arc<VersionCache>>,
    ) -> Arc<Self> {
        assert!(usize::from(identity.slot) < PLACES, "a place on the board");
        Arc::new(Session {
            identity,
            limits,
            turns: Turns::new(),
            threads: Mutex::default(),
            horizon: AtomicU64::new(0),
            safe: AtomicU64::new(1),
            outside: Outside::default(),
            floor: AtomicU64::new(0),
            settled_floor: AtomicU64::new(0),
            told: AtomicBool::new(false),
            sessions: AtomicU64::new(0),
            limbo: Mutex::default(),
            since: AtomicU64::new(0),
            beat: AtomicU64::new(0),
            watch: Watch::new(),
            fenced: AtomicBool::new(false),
            versions,
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

    /// The name of a thread as an owner of slabs.
    pub(crate) fn slab_owner(&self, thread: u16) -> u64 {
        SLAB_OWNERS | u64::from(self.lock_owner(thread))
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

    /// Whether a thread has not ended, or has left locks behind.
    pub(crate) fn is_unclean(&self) -> bool {
        let threads = self.threads();
        !threads.active.is_empty() || threads.vacant.len() < usize::from(threads.next)
    }

    /// No lock of a thread that has ended is of after this time.
    pub(crate) fn last_use(&self) -> u64 {
        let threads = self.threads();
        let last = threads.vacant.iter().map(|vacancy| vacancy.last_tick).max().unwrap_or(0);
        Lock::time_at(last).max(self.since.load(Ordering::Acquire))
    }

    pub(crate) fn limbo(&self) -> MutexGuard<'_, Vec<Limbo>> {
        self.limbo.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a name of an owner of slabs is that of a thread of the session in a place.
pub(crate) fn is_slab_owner(slot: u16, owner: u64) -> bool {
    let first = SLAB_OWNERS | u64::from(slot * THREADS);
    (first..first + u64::from(THREADS)).contains(&owner)
}
