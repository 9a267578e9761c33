//! Workloads on Farside's tables: rows of a workload's table are rows of a table, under keys of eight bytes.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use farside_fabric::{Counts, FabricError};
use farside_index::{
    Client, Error, Memory, Table as IndexTable, TableOptions, Tx, Want as IndexWant,
};
use farside_txn::{Effort, Level, TxnError};
use smallvec::SmallVec;

use crate::history::UNTOLD;

use super::{Failure, Rows, Session, Table, TableShape, Transaction, Want};

/// The tables of a workload, once they were created. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Tables(Arc<Mutex<Known>>);

#[derive(Clone, Debug, Default)]
struct Known {
    tables: BTreeMap<u16, IndexTable>,
    /// What was committed until then was loaded: it has no writer in a history.
    loaded_until: u64,
    /// Where rows and buckets are, as far as whoever loaded them knows.
    memory: Option<Memory>,
}

/// Rows that are loaded in one transaction.
const LOADED_AT_ONCE: usize = 16;

/// Such transactions at a time.
const TRANSACTIONS_AT_ONCE: usize = 16;

/// How often something is tried again while tables are set up.
const MOST_TRIES: u32 = 1000;

/// What a workload's table is called.
pub(crate) fn table_name(table: Table) -> String {
    format!("workload-{}", table.0)
}

impl Tables {
    /// Creates them, or finds them.
    pub async fn create(&self, client: &Rc<Client>, shapes: &[TableShape]) -> Result<(), Failure> {
        for shape in shapes {
            let options = TableOptions { value_bytes: shape.value_bytes as u32 };
            let name = table_name(shape.table);
            let table = again(client, async |tx| match tx.table(&name).await {
                Err(Error::NoTable(_)) => tx.create_table(&name, &options).await,
                known => known,
            })
            .await?;
            self.known().tables.insert(shape.table.0, table.0);
        }
        // This thread may do something else now: its locks are not to wait for that.
        client.agent().quiesce().await;
        Ok(())
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, table: Table) -> Result<IndexTable, Failure> {
        let known = self.known().tables.get(&table.0).copied();
        known.ok_or_else(|| Failure::Broken(format!("table {} was not created", table.0)))
    }

    /// Fills a table.
    pub async fn load(
        &self,
        client: &Rc<Client>,
        table: Table,
        rows: &mut dyn Iterator<Item = (u64, Vec<u8>)>,
    ) -> Result<(), Failure> {
        let table = self.get(table)?;
        loop {
            let mut loading = Vec::new();
            for _ in 0..TRANSACTIONS_AT_ONCE {
                let some: Vec<_> = rows.take(LOADED_AT_ONCE).collect();
                if !some.is_empty() {
                    let client = Rc::clone(client);
                    let load = async move { load_some(&client, &table, &some).await };
                    loading.push(load);
                }
            }
            if loading.is_empty() {
                self.known().memory = Some(client.memory());
                client.agent().quiesce().await;
                return Ok(());
            }
            let tasks: Vec<_> = loading.into_iter().map(|l| client.worker().spawn(l)).collect();
            for task in tasks {
                let time = task.await?;
                let mut known = self.known();
                known.loaded_until = known.loaded_until.max(time);
            }
        }
    }

    /// A thread learns what whoever loaded the tables knows.
    pub fn warm(&self, client: &Rc<Client>) {
        if let Some(memory) = &self.known().memory {
            client.remember(memory.clone());
        }
    }

    /// A coordinator's session.
    pub fn session(&self, client: &Rc<Client>) -> TableSession {
        let known = self.known();
        let (tables, loaded_until) = (known.tables.clone(), known.loaded_until);
        let known = Known { tables, loaded_until, memory: None };
        let effort = Rc::default();
        let level = Level::default();
        let (client, age, computes) = (Rc::clone(client), Cell::new(None), Duration::ZERO);
        TableSession { client, known, effort, age, level, computes }
    }
}

/// Loads some rows; when that was committed.
async fn load_some(
    client: &Rc<Client>,
    table: &IndexTable,
    rows: &[(u64, Vec<u8>)],
) -> Result<u64, Failure> {
    let ((), time) = again(client, async |tx| {
        let keys: Vec<[u8; 8]> = rows.iter().map(|(key, _)| key.to_be_bytes()).collect();
        let values = rows.iter().map(|(_, value)| &value[..]);
        let rows: Vec<_> = keys.iter().map(|key| &key[..]).zip(values).collect();
        tx.put_many(table, &rows).await
    })
    .await?;
    Ok(time)
}

/// Does something in a transaction, again where others are in the way.
async fn again<T>(
    client: &Rc<Client>,
    mut act: impl AsyncFnMut(&mut Tx) -> Result<T, Error>,
) -> Result<(T, u64), Failure> {
    let mut age = None;
    for tries in 0..MOST_TRIES {
        let done = async {
            let mut tx = client.begin_aged(age).await?;
            age = Some(tx.age());
            let done = act(&mut tx).await?;
            tx.commit().await.map(|time| (done, time.unwrap_or(0)))
        };
        match done.await {
            Err(Error::Txn(error)) if error.is_passing() => {}
            done => return done.map_err(failure),
        }
        let pause = client.worker().random_below(1000 << tries.min(10));
        client.worker().sleep(Duration::from_nanos(pause)).await;
    }
    Err(Failure::Broken("others were always in the way".into()))
}

/// A coordinator's session.
#[derive(Debug)]
pub struct TableSession {
    client: Rc<Client>,
    known: Known,
    effort: Rc<Cell<Effort>>,
    /// That of the transaction at hand, until it is committed.
    age: Cell<Option<u64>>,
    level: Level,
    /// What a thread computes when a transaction begins, where time is simulated.
    computes: Duration,
}

/// A transaction.
#[derive(Debug)]
pub struct TableTxn<'s> {
    session: &'s TableSession,
    tx: Tx,
}

impl TableSession {
    /// Whose transactions are promised something else than usual.
    #[must_use]
    pub fn at(self, level: Level) -> Self {
        TableSession { level, ..self }
    }

    /// Whose thread computes for so long when a transaction begins.
    #[must_use]
    pub(super) fn computing(self, computes: Duration) -> Self {
        TableSession { computes, ..self }
    }

    fn table(&self, table: Table) -> Result<&IndexTable, Failure> {
        let known = self.known.tables.get(&table.0);
        known.ok_or_else(|| Failure::Broken(format!("table {} was not created", table.0)))
    }
}

fn failure(error: Error) -> Failure {
    match error {
        Error::Txn(passing) if passing.is_passing() => Failure::Conflict,
        // With a newer one it may be in time.
        Error::Txn(TxnError::TooOld) => Failure::Conflict,
        Error::Txn(TxnError::Fabric(FabricError::Fenced(_))) => Failure::Over,
        Error::Txn(TxnError::Pending(_)) => Failure::Unknown,
        broken => Failure::Broken(broken.to_string()),
    }
}

/// The verbs of a thread's transactions; round trips only where they are waited for.
pub(super) fn counts(client: &Client) -> Counts {
    let tally = client.agent().tally();
    let waited =
        [farside_txn::EXECUTE, farside_txn::VALIDATE, farside_txn::BLOB, farside_txn::INSTALL];
    let sum = waited.iter().fold(Counts::default(), |sum, phase| sum + tally.phase(*phase));
    let beside = [farside_txn::LOG, farside_txn::RELEASE];
    beside.iter().fold(sum, |sum, phase| sum + Counts { round_trips: 0, ..tally.phase(*phase) })
}

impl Session for TableSession {
    type Txn<'s> = TableTxn<'s>;

    async fn begin(&mut self) -> Result<TableTxn<'_>, Failure> {
        if !self.computes.is_zero() {
            self.client.worker().compute(self.computes);
        }
        let mut tx = self.client.begin_aged(self.age.get()).await.map_err(failure)?;
        self.age.set(Some(tx.age()));
        tx.set_level(self.level);
        tx.count_effort(&self.effort);
        Ok(TableTxn { session: self, tx })
    }

    fn effort(&self) -> Effort {
        self.effort.get()
    }
}

impl Transaction for TableTxn<'_> {
    async fn read(&mut self, wants: &[Want], rows: &mut Rows) -> Result<(), Failure> {
        let keys = wants.iter().map(|want| want.key.to_be_bytes());
        let keys: SmallVec<[[u8; 8]; 4]> = keys.collect();
        let mut asked = SmallVec::<[_; 4]>::new();
        for (want, key) in wants.iter().zip(&keys) {
            let table = self.session.table(want.table)?;
            asked.push(IndexWant { table, key, intent: want.intent });
        }
        rows.clear();
        let loaded = self.session.known.loaded_until;
        let each = |_, stamp, value: Option<&[u8]>| {
            let version = match value {
                None => UNTOLD,
                Some(_) if stamp <= loaded => 0,
                Some(_) => stamp,
            };
            rows.push(version, value);
        };
        let read = self.tx.read(&asked, each).await;
        read.map_err(failure)
    }

    async fn write(&mut self, table: Table, key: u64, value: Option<&[u8]>) -> Result<(), Failure> {
        let (table, key) = (self.session.table(table)?, key.to_be_bytes());
        let written = match value {
            Some(value) => self.tx.put(table, &key, value).await,
            None => self.tx.delete(table, &key).await.map(drop),
        };
        written.map_err(failure)
    }

    fn read_time(&self) -> Option<u64> {
        self.tx.read_time()
    }

    async fn commit(self) -> Result<Option<u64>, Failure> {
        let time = self.tx.commit().await.map_err(failure)?;
        self.session.age.set(None);
        Ok(time)
    }
}
