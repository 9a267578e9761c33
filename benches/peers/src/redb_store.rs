//! redb: readers in parallel, one writer, pages that are copied and synced.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use farside_workloads::engine::Failure;
use redb::{
    Database, Durability, ReadTransaction, ReadableTable, TableDefinition, WriteTransaction,
};

use crate::peer::{Handle, Key, Peer, Txn, broken};

const ROWS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("rows");

#[derive(Clone)]
pub struct Redb {
    db: Arc<Database>,
    durability: Durability,
}

impl Redb {
    pub fn open(dir: &Path, sync: bool) -> Result<Self> {
        let db = Arc::new(Database::create(dir.join("redb"))?);
        let txn = db.begin_write()?;
        txn.open_table(ROWS)?;
        txn.commit()?;
        let durability = if sync { Durability::Immediate } else { Durability::None };
        Ok(Redb { db, durability })
    }
}

impl Peer for Redb {
    type Handle = Redb;

    fn handle(&self) -> Redb {
        self.clone()
    }
}

impl Handle for Redb {
    type Txn<'a> = RedbTxn;

    fn begin(&mut self, writes: bool) -> Result<RedbTxn, Failure> {
        if !writes {
            return self.db.begin_read().map(RedbTxn::Reads).map_err(broken);
        }
        let mut txn = self.db.begin_write().map_err(broken)?;
        txn.set_durability(self.durability);
        Ok(RedbTxn::Writes(txn))
    }
}

pub enum RedbTxn {
    Reads(ReadTransaction),
    Writes(WriteTransaction),
}

impl Txn for RedbTxn {
    fn get(&mut self, key: &Key, found: &mut dyn FnMut(Option<&[u8]>)) -> Result<(), Failure> {
        match self {
            RedbTxn::Reads(txn) => {
                let table = txn.open_table(ROWS).map_err(broken)?;
                found(table.get(&key[..]).map_err(broken)?.as_ref().map(|row| row.value()));
            }
            RedbTxn::Writes(txn) => {
                let table = txn.open_table(ROWS).map_err(broken)?;
                found(table.get(&key[..]).map_err(broken)?.as_ref().map(|row| row.value()));
            }
        }
        Ok(())
    }

    fn put(&mut self, key: &Key, value: &[u8]) -> Result<(), Failure> {
        let RedbTxn::Writes(txn) = self else { return Err(Failure::Conflict) };
        let mut table = txn.open_table(ROWS).map_err(broken)?;
        table.insert(&key[..], value).map(drop).map_err(broken)
    }

    fn delete(&mut self, key: &Key) -> Result<(), Failure> {
        let RedbTxn::Writes(txn) = self else { return Err(Failure::Conflict) };
        let mut table = txn.open_table(ROWS).map_err(broken)?;
        table.remove(&key[..]).map(drop).map_err(broken)
    }

    fn commit(self) -> Result<(), Failure> {
        match self {
            RedbTxn::Reads(_) => Ok(()),
            RedbTxn::Writes(txn) => txn.commit().map_err(broken),
        }
    }
}
