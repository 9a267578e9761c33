//! The same without `async`: one call after the other.

use crate::connection::Passing;
use crate::{
    Connection, Error, Level, Moment, Outcome, Result, Snapshot, Table, TableOptions, Transaction,
    TransactionId,
};

/// A thread's way to a database, one call after the other.
///
/// ```
/// let db = farside::Database::open("mem:")?.blocking()?;
/// let table = db.create_table("words")?;
/// db.put(&table, b"hello", b"world")?;
/// assert_eq!(db.get(&table, b"hello")?.as_deref(), Some(&b"world"[..]));
/// # Ok::<(), farside::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Blocking {
    connection: Connection,
}

impl Blocking {
    pub(crate) fn new(connection: Connection) -> Self {
        Blocking { connection }
    }

    /// The asynchronous interface of the same connection.
    ///
    /// ```
    /// let db = farside::Database::open("mem:")?.blocking()?;
    /// let connection = db.connection();
    /// assert!(connection.block_on(connection.tables())?.is_empty());
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// See [`Connection::outcome`].
    ///
    /// ```
    /// use farside::{Outcome, TransactionId};
    ///
    /// # let db = farside::Database::open("mem:")?.blocking()?;
    /// # let table = db.create_table("t")?;
    /// let id = TransactionId::fresh()?;
    /// db.transact(|tx| {
    ///     tx.remember(id)?;
    ///     tx.put(&table, b"key", b"value")
    /// })?;
    /// assert_eq!(db.outcome(id)?, Outcome::Committed);
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub fn outcome(&self, id: TransactionId) -> Result<Outcome> {
        self.connection.block_on(self.connection.outcome(id))
    }

    /// See [`Connection::transact`].
    ///
    /// ```
    /// # let db = farside::Database::open("mem:")?.blocking()?;
    /// let table = db.create_table("accounts")?;
    /// db.transact(|tx| {
    ///     tx.add(&table, b"alice", -10)?;
    ///     tx.add(&table, b"bob", 10)
    /// })?;
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub fn transact<T, E: From<Error>>(
        &self,
        body: impl FnMut(&mut BlockingTransaction<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        self.transact_at(Level::Strict, body)
    }

    /// See [`Connection::transact_at`].
    ///
    /// ```
    /// # let db = farside::Database::open("mem:")?.blocking()?;
    /// # let table = db.create_table("t")?;
    /// db.transact_at(farside::Level::Snapshot, |tx| tx.put(&table, b"key", b"value"))?;
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub fn transact_at<T, E: From<Error>>(
        &self,
        level: Level,
        mut body: impl FnMut(&mut BlockingTransaction<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut moment = crate::connection::Tries::at(&self.connection, level);
        loop {
            let tx = self.connection.block_on(moment.begin())?;
            let mut tx = BlockingTransaction { connection: &self.connection, tx };
            let done = body(&mut tx);
            let why = tx.tx.why_again();
            let done = match done {
                Ok(output) => match tx.commit() {
                    Ok(_) => return Ok(output),
                    Err(error) => (Passing::of(&error), E::from(error)),
                },
                Err(error) => {
                    tx.abort();
                    (why, error)
                }
            };
            self.connection.block_on(moment.again(done))?;
        }
    }

    /// See [`Connection::begin`].
    ///
    /// ```
    /// # let db = farside::Database::open("mem:")?.blocking()?;
    /// # let table = db.create_table("t")?;
    /// let mut tx = db.begin()?;
    /// tx.put(&table, b"key", b"value")?;
    /// tx.commit()?;
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub fn begin(&self) -> Result<BlockingTransaction<'_>> {
        let tx = self.connection.block_on(self.connection.begin())?;
        Ok(BlockingTransaction { connection: &self.connection, tx })
    }

    /// See [`Connection::snapshot`].
    ///
    /// ```
    /// # let db = farside::Database::open("mem:")?.blocking()?;
    /// # let table = db.create_table("t")?;
    /// let mut before = db.snapshot()?;
    /// db.put(&table, b"key", b"value")?;
    /// assert_eq!(before.get(&table, b"key")?, None);
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub fn snapshot(&self) -> Result<BlockingSnapshot<'_>> {
        let snapshot = self.connection.block_on(self.connection.snapshot())?;
        Ok(BlockingSnapshot { connection: &self.connection, snapshot })
    }

    /// See [`Connection::snapshot_at`].
    ///
    /// ```
    /// # let db = farside::Database::open("mem:")?.blocking()?;
    /// # let table = db.create_table("t")?;
    /// let moment = db.snapshot()?;
    /// assert_eq!(db.snapshot_at(moment.share())?.get(&table, b"key")?, None);
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub fn snapshot_at(&self, moment: Moment) -> Result<BlockingSnapshot<'_>> {
        let snapshot = self.connection.block_on(self.connection.snapshot_at(moment))?;
        Ok(BlockingSnapshot { connection: &self.connection, snapshot })
    }

    /// The value of a key now.
    ///
    /// ```
    /// # let db = farside::Database::open("mem:")?.blocking()?;
    /// # let table = db.create_table("t")?;
    /// assert_eq!(db.get(&table, b"key")?, None);
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub fn get(&self, table: &Table, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.transact(|tx| tx.get(table, key))
    }

    /// The values of several keys, at one moment.
    ///
    /// ```
    /// # let db = farside::Database::open("mem:")?.blocking()?;
    /// # let table = db.create_table("t")?;
    /// assert_eq!(db.get_many(&table, &[b"a", b"b"])?, [None, None]);
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub fn get_many(&self, table: &Table, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>> {
        self.transact(|tx| tx.get_many(table, keys))
    }

    /// Writes a key, in a transaction of its own.
    ///
    /// ```
    /// # let db = farside::Database::open("mem:")?.blocking()?;
    /// # let table = db.create_table("t")?;
    /// db.put(&table, b"key", b"value")?;
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub fn put(&self, table: &Table, key: &[u8], value: &[u8]) -> Result<()> {
        self.transact(|tx| tx.put(table, key, value))
    }

    /// Writes a key that is not there, in a transaction of its own.
    ///
    /// ```
    /// # let db = farside::Database::open("mem:")?.blocking()?;
    /// # let table = db.create_table("t")?;
    /// db.insert(&table, b"key", b"value")?;
    /// assert_eq!(db.insert(&table, b"key", b"value"), Err(farside::Error::KeyExists));
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub fn insert(&self, table: &Table, key: &[u8], value: &[u8]) -> Result<()> {
        self.transact(|tx| tx.insert(table, key, value))
    }

    /// Writes a key that is there, in a transaction of its own.
    ///
    /// ```
    /// # let db = farside::Database::open("mem:")?.blocking()?;
    /// # let table = db.create_table("t")?;
    /// assert_eq!(db.update(&table, b"key", b"value"), Err(farside::Error::NoKey));
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub fn update(&self, table: &Table, key: &[u8], value: &[u8]) -> Result<()> {
        self.transact(|tx| tx.update(table, key, value))
    }

    /// Deletes a key, in a transaction of its own; whether it was there.
    ///
    /// ```
    /// # let db = farside::Database::open("mem:")?.blocking()?;
    /// # let table = db.create_table("t")?;
    /// assert!(!db.delete(&table, b"key")?);
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub fn delete(&self, table: &Table, key: &[u8]) -> Result<bool> {
        self.transact(|tx| tx.delete(table, key))
    }

    /// Adds to a number, in a transaction of its own.
    ///
    /// ```
    /// # let db = farside::Database::open("mem:")?.blocking()?;
    /// # let table = db.create_table("t")?;
    /// assert_eq!(db.add(&table, b"visits", 1)?, 1);
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub fn add(&self, table: &Table, key: &[u8], by: i64) -> Result<i64> {
        self.transact(|tx| tx.add(table, key, by))
    }

    /// See [`Connection::create_table`].
    ///
    /// ```
    /// # let db = farside::Database::open("mem:")?.blocking()?;
    /// db.create_table("t")?;
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub fn create_table(&self, name: &str) -> Result<Table> {
        self.connection.block_on(self.connection.create_table(name))
    }

    /// See [`Connection::create_table_with`].
    ///
    /// ```
    /// # let db = farside::Database::open("mem:")?.blocking()?;
    /// db.create_table_with("t", farside::TableOptions { value_bytes: 500 })?;
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub fn create_table_with(&self, name: &str, options: TableOptions) -> Result<Table> {
        self.connection.block_on(self.connection.create_table_with(name, options))
    }

    /// See [`Connection::table`].
    ///
    /// ```
    /// # let db = farside::Database::open("mem:")?.blocking()?;
    /// assert!(db.table("t").is_err());
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub fn table(&self, name: &str) -> Result<Table> {
        self.connection.block_on(self.connection.table(name))
    }

    /// See [`Connection::open_table`].
    ///
    /// ```
    /// # let db = farside::Database::open("mem:")?.blocking()?;
    /// assert_eq!(db.open_table("t")?, db.open_table("t")?);
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub fn open_table(&self, name: &str) -> Result<Table> {
        self.connection.block_on(self.connection.open_table(name))
    }

    /// See [`Connection::tables`].
    ///
    /// ```
    /// # let db = farside::Database::open("mem:")?.blocking()?;
    /// assert!(db.tables()?.is_empty());
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub fn tables(&self) -> Result<Vec<String>> {
        self.connection.block_on(self.connection.tables())
    }

    /// See [`Connection::drop_table`].
    ///
    /// ```
    /// # let db = farside::Database::open("mem:")?.blocking()?;
    /// db.create_table("t")?;
    /// db.drop_table("t")?;
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub fn drop_table(&self, name: &str) -> Result<()> {
        self.connection.block_on(self.connection.drop_table(name))
    }
}

/// See [`Transaction`].
///
/// ```
/// # let db = farside::Database::open("mem:")?.blocking()?;
/// # let table = db.create_table("t")?;
/// let mut tx = db.begin()?;
/// tx.insert(&table, b"one", b"1")?;
/// tx.update(&table, b"one", b"uno")?;
/// assert_eq!(tx.get_for_update(&table, b"one")?.as_deref(), Some(&b"uno"[..]));
/// assert!(tx.delete(&table, b"one")?);
/// assert_eq!(tx.get_many(&table, &[b"one", b"two"])?, [None, None]);
/// tx.abort();
/// # Ok::<(), farside::Error>(())
/// ```
#[derive(Debug)]
pub struct BlockingTransaction<'c> {
    connection: &'c Connection,
    tx: Transaction,
}

impl BlockingTransaction<'_> {
    /// See [`Transaction::remember`].
    pub fn remember(&mut self, id: TransactionId) -> Result<()> {
        self.connection.block_on(self.tx.remember(id))
    }

    /// See [`Transaction::get`].
    pub fn get(&mut self, table: &Table, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.connection.block_on(self.tx.get(table, key))
    }

    /// See [`Transaction::get_many`].
    pub fn get_many(&mut self, table: &Table, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>> {
        self.connection.block_on(self.tx.get_many(table, keys))
    }

    /// See [`Transaction::get_for_update`].
    pub fn get_for_update(&mut self, table: &Table, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.connection.block_on(self.tx.get_for_update(table, key))
    }

    /// See [`Transaction::put`].
    pub fn put(&mut self, table: &Table, key: &[u8], value: &[u8]) -> Result<()> {
        self.connection.block_on(self.tx.put(table, key, value))
    }

    /// See [`Transaction::put_many`].
    pub fn put_many(&mut self, table: &Table, rows: &[(&[u8], &[u8])]) -> Result<()> {
        self.connection.block_on(self.tx.put_many(table, rows))
    }

    /// See [`Transaction::insert`].
    pub fn insert(&mut self, table: &Table, key: &[u8], value: &[u8]) -> Result<()> {
        self.connection.block_on(self.tx.insert(table, key, value))
    }

    /// See [`Transaction::update`].
    pub fn update(&mut self, table: &Table, key: &[u8], value: &[u8]) -> Result<()> {
        self.connection.block_on(self.tx.update(table, key, value))
    }

    /// See [`Transaction::delete`].
    pub fn delete(&mut self, table: &Table, key: &[u8]) -> Result<bool> {
        self.connection.block_on(self.tx.delete(table, key))
    }

    /// See [`Transaction::add`].
    pub fn add(&mut self, table: &Table, key: &[u8], by: i64) -> Result<i64> {
        self.connection.block_on(self.tx.add(table, key, by))
    }

    /// See [`Transaction::scan`].
    pub fn scan(&mut self, table: &Table, each: impl FnMut(&[u8], &[u8])) -> Result<()> {
        self.connection.block_on(self.tx.scan(table, each))
    }

    /// See [`Transaction::commit`].
    pub fn commit(self) -> Result<Option<u64>> {
        self.connection.block_on(self.tx.commit())
    }

    /// See [`Transaction::abort`].
    pub fn abort(self) {
        self.connection.block_on(self.tx.abort());
    }
}

/// See [`Snapshot`].
///
/// ```
/// # let db = farside::Database::open("mem:")?.blocking()?;
/// # let table = db.create_table("t")?;
/// db.put(&table, b"one", b"1")?;
/// let mut moment = db.snapshot()?;
/// assert_eq!(moment.get_many(&table, &[b"one"])?, [Some(b"1".to_vec())]);
/// moment.scan(&table, |key, value| assert_eq!((key, value), (&b"one"[..], &b"1"[..])))?;
/// # Ok::<(), farside::Error>(())
/// ```
#[derive(Debug)]
pub struct BlockingSnapshot<'c> {
    connection: &'c Connection,
    snapshot: Snapshot,
}

impl BlockingSnapshot<'_> {
    /// See [`Snapshot::share`].
    ///
    /// ```
    /// # let db = farside::Database::open("mem:")?.blocking()?;
    /// let moment = db.snapshot()?;
    /// assert!(db.snapshot()?.share() >= moment.share());
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub fn share(&self) -> Moment {
        self.snapshot.share()
    }

    /// See [`Snapshot::get`].
    pub fn get(&mut self, table: &Table, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.connection.block_on(self.snapshot.get(table, key))
    }

    /// See [`Snapshot::get_many`].
    pub fn get_many(&mut self, table: &Table, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>> {
        self.connection.block_on(self.snapshot.get_many(table, keys))
    }

    /// See [`Snapshot::scan`].
    pub fn scan(&mut self, table: &Table, each: impl FnMut(&[u8], &[u8])) -> Result<()> {
        self.connection.block_on(self.snapshot.scan(table, each))
    }
}
