//! What is used of RocksDB's C interface (`rocksdb/c.h` of librocksdb-dev).

use std::ffi::{c_char, c_int, c_uchar, c_void};

macro_rules! opaque {
    ($($name:ident)*) => { $(#[repr(C)] pub struct $name(c_void);)* };
}

opaque!(Db Options WriteOptions ReadOptions TxnOptions Transaction);

pub type Error = *mut c_char;

#[link(name = "rocksdb")]
unsafe extern "C" {
    pub fn rocksdb_options_create() -> *mut Options;
    pub fn rocksdb_options_set_create_if_missing(options: *mut Options, yes: c_uchar);
    pub fn rocksdb_options_increase_parallelism(options: *mut Options, threads: c_int);
    pub fn rocksdb_options_set_write_buffer_size(options: *mut Options, bytes: usize);
    pub fn rocksdb_options_destroy(options: *mut Options);
    pub fn rocksdb_writeoptions_create() -> *mut WriteOptions;
    pub fn rocksdb_writeoptions_set_sync(options: *mut WriteOptions, yes: c_uchar);
    #[link_name = "rocksdb_writeoptions_disable_WAL"]
    pub fn rocksdb_writeoptions_disable_wal(options: *mut WriteOptions, yes: c_int);
    pub fn rocksdb_readoptions_create() -> *mut ReadOptions;
    pub fn rocksdb_optimistictransaction_options_create() -> *mut TxnOptions;
    pub fn rocksdb_optimistictransactiondb_open(
        options: *const Options,
        name: *const c_char,
        error: *mut Error,
    ) -> *mut Db;
    pub fn rocksdb_optimistictransaction_begin(
        db: *mut Db,
        write: *const WriteOptions,
        options: *const TxnOptions,
        old: *mut Transaction,
    ) -> *mut Transaction;
    pub fn rocksdb_transaction_get_for_update(
        txn: *mut Transaction,
        read: *const ReadOptions,
        key: *const c_char,
        key_bytes: usize,
        value_bytes: *mut usize,
        exclusive: c_uchar,
        error: *mut Error,
    ) -> *mut c_char;
    pub fn rocksdb_transaction_put(
        txn: *mut Transaction,
        key: *const c_char,
        key_bytes: usize,
        value: *const c_char,
        value_bytes: usize,
        error: *mut Error,
    );
    pub fn rocksdb_transaction_delete(
        txn: *mut Transaction,
        key: *const c_char,
        key_bytes: usize,
        error: *mut Error,
    );
    pub fn rocksdb_transaction_commit(txn: *mut Transaction, error: *mut Error);
    pub fn rocksdb_transaction_rollback(txn: *mut Transaction, error: *mut Error);
    pub fn rocksdb_free(memory: *mut c_void);
}
