//! The reference engine: a map in this process under one lock, with versions that are checked when a
//! transaction reads and when it commits. And, deliberately broken, one for each anomaly.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use farside_fabric::Worker;

use super::{Engine, Failure, Rows, Session, Table, Transaction, Want};

/// A rule that is left out, for the checker to find what that leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flaw {
    /// Writes take effect at once, and nothing is checked: *G0*.
    DirtyWrite,
    /// Some aborts leave their writes behind: *G1a*.
    AbortedWrite,
    /// Who writes a row twice shows the first version: *G1b*.
    IntermediateWrite,
    /// Writes are seen before they are committed: *G1c*.
    DirtyRead,
    /// Rows that are written are not checked: *lost update*.
    LostUpdate,
    /// Who only reads is not checked: *G-single*.
    ReadSkew,
    /// Rows that are only read are not checked at the end: *G2-item*.
    WriteSkew,
    /// Rows that are absent are not checked at the end: *G2*.
    Phantom,
    /// Some read from a snapshot of the past: *stale read*.
    StaleRead,
    /// Reads are checked at the end alone, so that those that are aborted have seen what never was:
    /// *non-opaque read*.
    LateCheck,
}

impl Flaw {
    /// All of them, each with the name of what it leads to.
    pub const ALL: [(Flaw, &'static str); 10] = [
        (Flaw::DirtyWrite, "G0"),
        (Flaw::AbortedWrite, "G1a"),
        (Flaw::IntermediateWrite, "G1b"),
        (Flaw::DirtyRead, "G1c"),
        (Flaw::LostUpdate, "lost update"),
        (Flaw::ReadSkew, "G-single"),
        (Flaw::WriteSkew, "G2-item"),
        (Flaw::Phantom, "G2"),
        (Flaw::StaleRead, "stale read"),
        (Flaw::LateCheck, "non-opaque read"),
    ];
}

/// How far in the past snapshots are that are stale, in commits.
const STALE: u64 = 16;

type Place = (u16, u64);
type Value = Option<Box<[u8]>>;

/// The store. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Reference {
    state: Arc<Mutex<State>>,
    flaw: Option<Flaw>,
    pause: Option<Duration>,
}

#[derive(Debug, Default)]
struct State {
    rows: HashMap<Place, Cell>,
    commits: u64,
}

/// A row: its newest version, and where flaws need them older ones and one that is not committed.
#[derive(Debug, Default)]
struct Cell {
    version: u64,
    value: Value,
    old: Vec<(u64, Value)>,
    dirty: Value,
}

impl Reference {
    /// An empty store, sound or not.
    pub fn new(flaw: Option<Flaw>) -> Self {
        Reference { flaw, ..Reference::default() }
    }

    /// The same, in which each step takes so long: for the simulator, where nothing takes time by itself.
    #[must_use]
    pub fn with_pause(self, pause: Duration) -> Self {
        Reference { pause: Some(pause), ..self }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }
}

impl State {
    fn version(&self, place: &Place) -> u64 {
        self.rows.get(place).map_or(0, |cell| cell.version)
    }

    fn install(&mut self, place: Place, value: Value, version: u64, keep: bool) {
        let cell = self.rows.entry(place).or_default();
        let old = std::mem::replace(&mut cell.value, value);
        if keep {
            cell.old.push((cell.version, old));
        }
        cell.version = version;
        cell.dirty = None;
    }
}

impl Engine for Reference {
    type Session = ReferenceSession;

    fn session(&self, worker: &Worker) -> ReferenceSession {
        ReferenceSession { engine: self.clone(), worker: worker.clone() }
    }

    async fn load(
        &self,
        _: &Worker,
        table: Table,
        rows: &mut dyn Iterator<Item = (u64, Vec<u8>)>,
    ) -> Result<(), Failure> {
        let mut state = self.lock();
        for (key, value) in rows {
            let cell = Cell { value: Some(value.into()), ..Cell::default() };
            state.rows.insert((table.0, key), cell);
        }
        Ok(())
    }
}

/// A coordinator's session.
#[derive(Debug)]
pub struct ReferenceSession {
    engine: Reference,
    worker: Worker,
}

impl Session for ReferenceSession {
    type Txn<'s> = ReferenceTxn<'s>;

    async fn begin(&mut self) -> Result<ReferenceTxn<'_>, Failure> {
        let stale = self.engine.has(Flaw::StaleRead) && self.worker.random_below(8) == 0;
        let snapshot = stale.then(|| self.engine.lock().commits.saturating_sub(STALE));
        Ok(ReferenceTxn {
            session: self,
            read: BTreeMap::new(),
            written: BTreeMap::new(),
            snapshot,
        })
    }
}

/// A transaction.
#[derive(Debug)]
pub struct ReferenceTxn<'s> {
    session: &'s mut ReferenceSession,
    /// The versions that it has read, and whether the row was there.
    read: BTreeMap<Place, (u64, bool)>,
    written: BTreeMap<Place, Value>,
    /// The past that it reads from, in one that is broken.
    snapshot: Option<u64>,
}

impl ReferenceTxn<'_> {
    /// Lets others go on: every step is one to a store far away.
    async fn step(&self) {
        match self.session.engine.pause {
            Some(pause) => self.session.worker.sleep(pause).await,
            None => self.session.worker.yield_now().await,
        }
    }

    fn has(&self, flaw: Flaw) -> bool {
        self.session.engine.has(flaw)
    }

    /// Whether all that was read is still so, as far as this engine cares.
    fn is_current(&self, state: &State, at_the_end: bool) -> bool {
        let only_reads = self.written.is_empty();
        let flaw = self.session.engine.flaw;
        self.read.iter().all(|(place, (version, present))| {
            let writes = self.written.contains_key(place);
            let skipped = match flaw {
                Some(Flaw::DirtyWrite | Flaw::DirtyRead) => true,
                Some(Flaw::LostUpdate) => at_the_end && writes,
                Some(Flaw::ReadSkew) => !at_the_end || only_reads,
                Some(Flaw::WriteSkew) => at_the_end && !writes,
                Some(Flaw::Phantom) => at_the_end && !present && !writes,
                Some(Flaw::LateCheck) => !at_the_end,
                _ => false,
            };
            skipped || state.version(place) == *version
        })
    }

    fn see(&mut self, place: Place, state: &State, rows: &mut Rows) {
        if let Some(own) = self.written.get(&place) {
            rows.push(0, own.as_deref());
            return;
        }
        let Some(cell) = state.rows.get(&place) else {
            self.read.entry(place).or_insert((0, false));
            rows.push(0, None);
            return;
        };
        let (mut version, mut value) = (cell.version, cell.value.as_deref());
        if let Some(past) = self.snapshot.filter(|past| version > *past) {
            let old = cell.old.iter().rev().find(|(version, _)| *version <= past);
            (version, value) =
                old.map_or((0, None), |(version, value)| (*version, value.as_deref()));
        } else if cell.dirty.is_some() {
            value = cell.dirty.as_deref();
        }
        self.read.entry(place).or_insert((version, value.is_some()));
        rows.push(version, value);
    }
}

impl Transaction for ReferenceTxn<'_> {
    async fn read(&mut self, wants: &[Want], rows: &mut Rows) -> Result<(), Failure> {
        self.step().await;
        rows.clear();
        let engine = self.session.engine.clone();
        let state = engine.lock();
        for want in wants {
            self.see((want.table.0, want.key), &state, rows);
        }
        let current = self.snapshot.is_some() || self.is_current(&state, false);
        if current { Ok(()) } else { Err(Failure::Conflict) }
    }

    async fn write(&mut self, table: Table, key: u64, value: Option<&[u8]>) -> Result<(), Failure> {
        let place = (table.0, key);
        let value: Value = value.map(Into::into);
        let engine = self.session.engine.clone();
        if self.has(Flaw::DirtyWrite) {
            let mut state = engine.lock();
            state.commits += 1;
            let version = state.commits;
            state.install(place, value, version, false);
            return Ok(());
        }
        if self.has(Flaw::DirtyRead) {
            engine.lock().rows.entry(place).or_default().dirty.clone_from(&value);
        }
        let before = self.written.insert(place, value);
        if let (true, Some(before)) = (self.has(Flaw::IntermediateWrite), before) {
            let mut state = engine.lock();
            let fresh = self.read.get(&place).is_none_or(|(v, _)| state.version(&place) == *v);
            if fresh {
                state.commits += 1;
                let version = state.commits;
                state.install(place, before, version, false);
                self.read.insert(place, (version, true));
            }
        }
        Ok(())
    }

    async fn commit(mut self) -> Result<Option<u64>, Failure> {
        self.step().await;
        let engine = self.session.engine.clone();
        let mut state = engine.lock();
        if self.snapshot.is_some() && self.written.is_empty() {
            return Ok(None);
        }
        if !self.is_current(&state, true) {
            return Err(Failure::Conflict);
        }
        if self.written.is_empty() {
            return Ok(None);
        }
        state.commits += 1;
        let time = state.commits;
        let keep = self.has(Flaw::StaleRead);
        for (place, value) in std::mem::take(&mut self.written) {
            state.install(place, value, time, keep);
        }
        if self.has(Flaw::AbortedWrite) && self.session.worker.random_below(16) == 0 {
            return Err(Failure::Conflict);
        }
        Ok(Some(time))
    }
}
