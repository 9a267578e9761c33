//! LMDB: readers in parallel, one writer, pages that are copied and synced.

use std::path::Path;

use anyhow::Result;
use farside_workloads::engine::Failure;
use heed::types::Bytes;
use heed::{Database, Env, EnvFlags, EnvOpenOptions, RoTxn, RwTxn, WithoutTls};

use crate::peer::{Handle, Key, Peer, Txn, broken};

type Rows = Database<Bytes, Bytes>;

#[derive(Clone)]
pub struct Lmdb {
    env: Env<WithoutTls>,
    rows: Rows,
}

impl Lmdb {
    /// With `map`, pages are written in a mapping of the file.
    pub fn open(dir: &Path, sync: bool, map: bool) -> Result<Self> {
        let mut options = EnvOpenOptions::new().read_txn_without_tls();
        options.map_size(4 << 30).max_readers(256);
        let sync = if sync { EnvFlags::empty() } else { EnvFlags::NO_SYNC };
        let map = if map { EnvFlags::WRITE_MAP } else { EnvFlags::empty() };
        // SAFETY: a crash may damage the file, which is removed afterwards.
        unsafe { options.flags(sync | map) };
        // SAFETY: nobody else has the directory.
        let env = unsafe { options.open(dir)? };
        let mut txn = env.write_txn()?;
        let rows = env.create_database(&mut txn, None)?;
        txn.commit()?;
        Ok(Lmdb { env, rows })
    }
}

impl Peer for Lmdb {
    type Handle = Lmdb;

    fn handle(&self) -> Lmdb {
        self.clone()
    }
}

impl Handle for Lmdb {
    type Txn<'a> = LmdbTxn<'a>;

    fn begin(&mut self, writes: bool) -> Result<LmdbTxn<'_>, Failure> {
        let rows = self.rows;
        Ok(match writes {
            true => LmdbTxn::Writes(self.env.write_txn().map_err(broken)?, rows),
            false => LmdbTxn::Reads(self.env.read_txn().map_err(broken)?, rows),
        })
    }
}

pub enum LmdbTxn<'a> {
    Reads(RoTxn<'a, WithoutTls>, Rows),
    Writes(RwTxn<'a>, Rows),
}

impl Txn for LmdbTxn<'_> {
    fn get(&mut self, key: &Key, found: &mut dyn FnMut(Option<&[u8]>)) -> Result<(), Failure> {
        found(match self {
            LmdbTxn::Reads(txn, rows) => rows.get(txn, key).map_err(broken)?,
            LmdbTxn::Writes(txn, rows) => rows.get(txn, key).map_err(broken)?,
        });
        Ok(())
    }

    fn put(&mut self, key: &Key, value: &[u8]) -> Result<(), Failure> {
        match self {
            LmdbTxn::Reads(..) => Err(Failure::Conflict),
            LmdbTxn::Writes(txn, rows) => rows.put(txn, key, value).map_err(broken),
        }
    }

    fn delete(&mut self, key: &Key) -> Result<(), Failure> {
        match self {
            LmdbTxn::Reads(..) => Err(Failure::Conflict),
            LmdbTxn::Writes(txn, rows) => rows.delete(txn, key).map(drop).map_err(broken),
        }
    }

    fn commit(self) -> Result<(), Failure> {
        match self {
            LmdbTxn::Reads(..) => Ok(()),
            LmdbTxn::Writes(txn, _) => txn.commit().map_err(broken),
        }
    }
}
