//! fjall: a log-structured tree with optimistic, serializable transactions.

use std::path::Path;

use anyhow::Result;
use farside_workloads::engine::Failure;
use fjall::{
    KeyspaceCreateOptions, OptimisticTxDatabase, OptimisticTxKeyspace, PersistMode, Readable,
};

use crate::peer::{Handle, Key, Peer, Txn, broken};

#[derive(Clone)]
pub struct Fjall {
    db: OptimisticTxDatabase,
    rows: OptimisticTxKeyspace,
    sync: bool,
}

impl Fjall {
    pub fn open(dir: &Path, sync: bool) -> Result<Self> {
        let db = OptimisticTxDatabase::builder(dir.join("fjall"))
            .manual_journal_persist(!sync)
            .open()?;
        let rows = db.keyspace("rows", KeyspaceCreateOptions::default)?;
        Ok(Fjall { db, rows, sync })
    }
}

impl Peer for Fjall {
    type Handle = Fjall;

    fn handle(&self) -> Fjall {
        self.clone()
    }
}

impl Handle for Fjall {
    type Txn<'a> = FjallTxn<'a>;

    fn begin(&mut self, writes: bool) -> Result<FjallTxn<'_>, Failure> {
        let rows = &self.rows;
        if !writes {
            return Ok(FjallTxn::Reads(self.db.read_tx(), rows));
        }
        let txn = self.db.write_tx().map_err(broken)?;
        let durability = self.sync.then_some(PersistMode::SyncData);
        Ok(FjallTxn::Writes(Box::new(txn.durability(durability)), rows))
    }
}

pub enum FjallTxn<'a> {
    Reads(fjall::Snapshot, &'a OptimisticTxKeyspace),
    Writes(Box<fjall::OptimisticWriteTx>, &'a OptimisticTxKeyspace),
}

impl Txn for FjallTxn<'_> {
    fn get(&mut self, key: &Key, found: &mut dyn FnMut(Option<&[u8]>)) -> Result<(), Failure> {
        let row = match self {
            FjallTxn::Reads(txn, rows) => txn.get(rows, key).map_err(broken)?,
            FjallTxn::Writes(txn, rows) => txn.get(rows, key).map_err(broken)?,
        };
        found(row.as_deref());
        Ok(())
    }

    fn put(&mut self, key: &Key, value: &[u8]) -> Result<(), Failure> {
        let FjallTxn::Writes(txn, rows) = self else { return Err(Failure::Conflict) };
        txn.insert(*rows, &key[..], value);
        Ok(())
    }

    fn delete(&mut self, key: &Key) -> Result<(), Failure> {
        let FjallTxn::Writes(txn, rows) = self else { return Err(Failure::Conflict) };
        txn.remove(*rows, &key[..]);
        Ok(())
    }

    fn commit(self) -> Result<(), Failure> {
        match self {
            FjallTxn::Reads(..) => Ok(()),
            FjallTxn::Writes(txn, _) => {
                txn.commit().map_err(broken)?.map_err(|_| Failure::Conflict)
            }
        }
    }
}
