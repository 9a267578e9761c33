//! A store whose calls block, as Farside's workloads see it.

use farside_fabric::Worker;
use farside_workloads::engine::{Engine, Failure, Intent, Rows, Session, Table, Transaction, Want};

/// A row's key: its table and its number, in order.
pub type Key = [u8; 10];

/// A store.
pub trait Peer: Clone + Send + Sync + 'static {
    /// What a thread has of it.
    type Handle: Handle;

    /// One for a thread.
    fn handle(&self) -> Self::Handle;
}

/// What a thread has of a store.
pub trait Handle: 'static {
    /// A transaction.
    type Txn<'a>: Txn;

    /// Begins one, which may write, or not.
    fn begin(&mut self, writes: bool) -> Result<Self::Txn<'_>, Failure>;
}

/// A transaction of a store. Dropping it aborts it.
pub trait Txn {
    /// Calls `found` with what is there.
    fn get(&mut self, key: &Key, found: &mut dyn FnMut(Option<&[u8]>)) -> Result<(), Failure>;

    fn put(&mut self, key: &Key, value: &[u8]) -> Result<(), Failure>;

    fn delete(&mut self, key: &Key) -> Result<(), Failure>;

    fn commit(self) -> Result<(), Failure>;
}

/// Something that trying again does not mend.
pub fn broken(error: impl std::fmt::Display) -> Failure {
    Failure::Broken(error.to_string())
}

fn key(table: Table, key: u64) -> Key {
    let mut bytes = [0; 10];
    bytes[..2].copy_from_slice(&table.0.to_be_bytes());
    bytes[2..].copy_from_slice(&key.to_be_bytes());
    bytes
}

/// A peer as an engine.
#[derive(Clone)]
pub struct Blocking<P>(pub P);

/// How many rows are loaded in one transaction.
const LOAD: usize = 10_000;

impl<P: Peer> Engine for Blocking<P> {
    type Session = BlockingSession<P::Handle>;

    fn session(&self, _worker: &Worker) -> Self::Session {
        BlockingSession { handle: self.0.handle(), writes: false }
    }

    async fn load(
        &self,
        _worker: &Worker,
        table: Table,
        rows: &mut dyn Iterator<Item = (u64, Vec<u8>)>,
    ) -> Result<(), Failure> {
        let mut handle = self.0.handle();
        loop {
            let mut txn = handle.begin(true)?;
            let mut count = 0;
            for (number, value) in (&mut *rows).take(LOAD) {
                txn.put(&key(table, number), &value)?;
                count += 1;
            }
            txn.commit()?;
            if count < LOAD {
                return Ok(());
            }
        }
    }
}

/// A thread's session.
pub struct BlockingSession<H> {
    handle: H,
    /// The last attempt found too late that it writes.
    writes: bool,
}

impl<H: Handle> Session for BlockingSession<H> {
    type Txn<'s> = BlockingTxn<'s, H>;

    async fn begin(&mut self) -> Result<BlockingTxn<'_, H>, Failure> {
        let BlockingSession { handle, writes } = self;
        Ok(BlockingTxn { handle: Some(handle), writes, txn: None })
    }
}

/// A transaction, which begins with the first thing that it does: then it is known whether it writes.
pub struct BlockingTxn<'s, H: Handle> {
    handle: Option<&'s mut H>,
    writes: &'s mut bool,
    txn: Option<(H::Txn<'s>, bool)>,
}

impl<H: Handle> BlockingTxn<'_, H> {
    fn ready(&mut self, writes: bool) -> Result<(), Failure> {
        if let Some(handle) = self.handle.take() {
            let writes = writes || std::mem::take(self.writes);
            self.txn = Some((handle.begin(writes)?, writes));
        }
        if writes && self.txn.as_ref().is_some_and(|(_, may_write)| !may_write) {
            *self.writes = true;
            return Err(Failure::Conflict);
        }
        Ok(())
    }
}

impl<H: Handle> Transaction for BlockingTxn<'_, H> {
    async fn read(&mut self, wants: &[Want], rows: &mut Rows) -> Result<(), Failure> {
        self.ready(wants.iter().any(|want| want.intent != Intent::Read))?;
        rows.clear();
        let (txn, _) = self.txn.as_mut().ok_or(Failure::Conflict)?;
        wants
            .iter()
            .try_for_each(|want| txn.get(&key(want.table, want.key), &mut |row| rows.push(0, row)))
    }

    async fn write(
        &mut self,
        table: Table,
        number: u64,
        value: Option<&[u8]>,
    ) -> Result<(), Failure> {
        self.ready(true)?;
        let (txn, _) = self.txn.as_mut().ok_or(Failure::Conflict)?;
        match value {
            Some(value) => txn.put(&key(table, number), value),
            None => txn.delete(&key(table, number)),
        }
    }

    async fn commit(self) -> Result<Option<u64>, Failure> {
        self.txn.map_or(Ok(()), |(txn, _)| txn.commit()).map(|()| None)
    }
}
