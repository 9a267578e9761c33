//! RocksDB's OptimisticTransactionDB, by its C interface: writers in parallel, who share a sync.

use std::ffi::{CStr, CString};
use std::path::Path;
use std::ptr::null_mut;

use anyhow::{Context, Result, bail};
use farside_workloads::engine::Failure;

use crate::peer::{Handle, Key, Peer, Txn, broken};
use crate::rocksdb_ffi as ffi;

/// A database, which stays open until the process ends.
#[derive(Clone, Copy)]
pub struct RocksDb {
    db: *mut ffi::Db,
    write: *const ffi::WriteOptions,
    read: *const ffi::ReadOptions,
    options: *const ffi::TxnOptions,
}

// SAFETY: RocksDB synchronizes what threads share, and options do not change.
unsafe impl Send for RocksDb {}
// SAFETY: as above.
unsafe impl Sync for RocksDb {}

/// What it says, if it says anything.
fn told(error: ffi::Error) -> Option<String> {
    if error.is_null() {
        return None;
    }
    // SAFETY: RocksDB gives a text that ends with zero, and is ours to free.
    unsafe {
        let text = CStr::from_ptr(error).to_string_lossy().into_owned();
        ffi::rocksdb_free(error.cast());
        Some(text)
    }
}

fn check(error: ffi::Error) -> Result<(), Failure> {
    match told(error) {
        None => Ok(()),
        Some(text) if text.contains("busy") || text.contains("Try again") => Err(Failure::Conflict),
        Some(text) => Err(broken(text)),
    }
}

impl RocksDb {
    pub fn open(dir: &Path, sync: bool) -> Result<Self> {
        let name = CString::new(dir.to_str().context("a directory with a plain name")?)?;
        let mut error = null_mut();
        // SAFETY: all that is passed was made by these functions, and is never freed while it is used.
        unsafe {
            let options = ffi::rocksdb_options_create();
            ffi::rocksdb_options_set_create_if_missing(options, 1);
            ffi::rocksdb_options_increase_parallelism(options, 2);
            ffi::rocksdb_options_set_write_buffer_size(options, 256 << 20);
            let db = ffi::rocksdb_optimistictransactiondb_open(options, name.as_ptr(), &mut error);
            ffi::rocksdb_options_destroy(options);
            if let Some(why) = told(error) {
                bail!("{}: {why}", dir.display());
            }
            let write = ffi::rocksdb_writeoptions_create();
            match sync {
                true => ffi::rocksdb_writeoptions_set_sync(write, 1),
                false => ffi::rocksdb_writeoptions_disable_wal(write, 1),
            }
            let read = ffi::rocksdb_readoptions_create();
            let options = ffi::rocksdb_optimistictransaction_options_create();
            Ok(RocksDb { db, write, read, options })
        }
    }
}

impl Peer for RocksDb {
    type Handle = RocksHandle;

    fn handle(&self) -> RocksHandle {
        RocksHandle { db: *self, txn: null_mut() }
    }
}

/// A thread's, with a transaction that is used again and again.
pub struct RocksHandle {
    db: RocksDb,
    txn: *mut ffi::Transaction,
}

impl Handle for RocksHandle {
    type Txn<'a> = RocksTxn;

    fn begin(&mut self, _writes: bool) -> Result<RocksTxn, Failure> {
        let RocksDb { db, write, options, .. } = self.db;
        // SAFETY: the old one is ours, and nobody uses it.
        self.txn =
            unsafe { ffi::rocksdb_optimistictransaction_begin(db, write, options, self.txn) };
        Ok(RocksTxn { txn: self.txn, read: self.db.read, open: true })
    }
}

pub struct RocksTxn {
    txn: *mut ffi::Transaction,
    read: *const ffi::ReadOptions,
    open: bool,
}

impl Txn for RocksTxn {
    fn get(&mut self, key: &Key, found: &mut dyn FnMut(Option<&[u8]>)) -> Result<(), Failure> {
        let (mut bytes, mut error) = (0, null_mut());
        // SAFETY: the transaction is open; what is found is as long as it says, and ours to free.
        unsafe {
            // Tracked: whoever only reads is serializable, too.
            let value = ffi::rocksdb_transaction_get_for_update(
                self.txn,
                self.read,
                key.as_ptr().cast(),
                key.len(),
                &mut bytes,
                0,
                &mut error,
            );
            check(error)?;
            match value.is_null() {
                true => found(None),
                false => found(Some(std::slice::from_raw_parts(value.cast(), bytes))),
            }
            ffi::rocksdb_free(value.cast());
        }
        Ok(())
    }

    fn put(&mut self, key: &Key, value: &[u8]) -> Result<(), Failure> {
        let (mut error, at, text) = (null_mut(), key.as_ptr().cast(), value.as_ptr().cast());
        // SAFETY: the transaction is open; it copies what it is given.
        unsafe {
            ffi::rocksdb_transaction_put(self.txn, at, key.len(), text, value.len(), &mut error)
        };
        check(error)
    }

    fn delete(&mut self, key: &Key) -> Result<(), Failure> {
        let mut error = null_mut();
        // SAFETY: the transaction is open; it copies what it is given.
        unsafe {
            ffi::rocksdb_transaction_delete(self.txn, key.as_ptr().cast(), key.len(), &mut error)
        };
        check(error)
    }

    fn commit(mut self) -> Result<(), Failure> {
        let mut error = null_mut();
        // SAFETY: the transaction is open.
        unsafe { ffi::rocksdb_transaction_commit(self.txn, &mut error) };
        check(error)?;
        self.open = false;
        Ok(())
    }
}

impl Drop for RocksTxn {
    fn drop(&mut self) {
        if self.open {
            let mut error = null_mut();
            // SAFETY: the transaction is open, or its commit has failed.
            unsafe { ffi::rocksdb_transaction_rollback(self.txn, &mut error) };
            let _ = told(error);
        }
    }
}
