//! Transactions.

use farside_index::{Intent, TableOptions, Tx, Want};

use crate::connection::Passing;
use crate::{Error, Result, Table};

/// A transaction: it reads and writes in any order, sees its own writes, and takes effect at once when it commits, or
/// not at all. Dropping it aborts it.
///
/// After an error of [`Error::Conflict`] it cannot go on; [`Connection::transact`](crate::Connection::transact)
/// begins again then.
#[derive(Debug)]
pub struct Transaction {
    tx: Tx,
    /// It cannot go on, and may succeed if it begins again.
    why: Option<Passing>,
}

impl Transaction {
    pub(crate) fn new(tx: Tx) -> Self {
        Transaction { tx, why: None }
    }

    /// Says that it will probably write something: if what it reads is about to change it is aborted soon, and not only at its
    /// commit.
    ///
    /// ```
    /// # let connection = farside::Database::open("mem:")?.connect()?;
    /// # connection.block_on(async {
    /// # let table = connection.create_table("t").await?;
    /// connection
    ///     .transact(async |tx| {
    ///         tx.expect_writes();
    ///         let value = tx.get(&table, b"a").await?.unwrap_or_default();
    ///         tx.put(&table, b"b", &value).await
    ///     })
    ///     .await?;
    /// # Ok::<(), farside::Error>(()) })?;
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub fn expect_writes(&mut self) {
        self.tx.expect_writes();
    }

    /// Why it may succeed if it is tried again, after an error of ours.
    pub(crate) fn why_again(&self) -> Option<Passing> {
        self.why
    }

    fn note<T>(&mut self, done: Result<T, farside_index::Error>) -> Result<T> {
        done.map_err(|error| {
            let error = Error::from(error);
            self.why = self.why.or(Passing::of(&error));
            error
        })
    }

    /// The value of a key, if it is there.
    ///
    /// ```
    /// # let connection = farside::Database::open("mem:")?.connect()?;
    /// # connection.block_on(async {
    /// # let table = connection.create_table("t").await?;
    /// let value = connection.transact(async |tx| tx.get(&table, b"key").await).await?;
    /// assert_eq!(value, None);
    /// # Ok::<(), farside::Error>(()) })?;
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub async fn get(&mut self, table: &Table, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let found = self.tx.get(table, key).await;
        self.note(found)
    }

    /// The values of several keys, read together: in as many round trips as one.
    ///
    /// ```
    /// # let connection = farside::Database::open("mem:")?.connect()?;
    /// # connection.block_on(async {
    /// # let table = connection.create_table("t").await?;
    /// let both = connection.transact(async |tx| tx.get_many(&table, &[b"a", b"b"]).await).await?;
    /// assert_eq!(both, [None, None]);
    /// # Ok::<(), farside::Error>(()) })?;
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub async fn get_many(
        &mut self,
        table: &Table,
        keys: &[&[u8]],
    ) -> Result<Vec<Option<Vec<u8>>>> {
        let found = read_many(&mut self.tx, table, keys).await;
        self.note(found)
    }

    /// The value of a key, which nobody else can change until this ends: for a write that follows.
    ///
    /// ```
    /// # let connection = farside::Database::open("mem:")?.connect()?;
    /// # connection.block_on(async {
    /// # let table = connection.create_table("t").await?;
    /// connection
    ///     .transact(async |tx| {
    ///         let mut list = tx.get_for_update(&table, b"list").await?.unwrap_or_default();
    ///         list.push(7);
    ///         tx.put(&table, b"list", &list).await
    ///     })
    ///     .await?;
    /// # Ok::<(), farside::Error>(()) })?;
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub async fn get_for_update(&mut self, table: &Table, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let found = self.tx.get_for_update(table, key).await;
        self.note(found)
    }

    /// Writes a key, whether it is there or not.
    ///
    /// ```
    /// # let connection = farside::Database::open("mem:")?.connect()?;
    /// # connection.block_on(async {
    /// # let table = connection.create_table("t").await?;
    /// connection.transact(async |tx| tx.put(&table, b"key", b"value").await).await?;
    /// # Ok::<(), farside::Error>(()) })?;
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub async fn put(&mut self, table: &Table, key: &[u8], value: &[u8]) -> Result<()> {
        let done = self.tx.put(table, key, value).await;
        self.note(done)
    }

    /// Writes several keys, whether they are there or not, in as many round trips as one.
    ///
    /// ```
    /// # let connection = farside::Database::open("mem:")?.connect()?;
    /// # connection.block_on(async {
    /// # let table = connection.create_table("t").await?;
    /// let rows: [(&[u8], &[u8]); 2] = [(b"one", b"1"), (b"two", b"2")];
    /// connection.transact(async |tx| tx.put_many(&table, &rows).await).await?;
    /// # Ok::<(), farside::Error>(()) })?;
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub async fn put_many(&mut self, table: &Table, rows: &[(&[u8], &[u8])]) -> Result<()> {
        let done = self.tx.put_many(table, rows).await;
        self.note(done)
    }

    /// Writes a key that is not there; [`Error::KeyExists`] if it is.
    ///
    /// ```
    /// # let connection = farside::Database::open("mem:")?.connect()?;
    /// # connection.block_on(async {
    /// # let table = connection.create_table("t").await?;
    /// connection.transact(async |tx| tx.insert(&table, b"key", b"value").await).await?;
    /// let again = connection.transact(async |tx| tx.insert(&table, b"key", b"other").await).await;
    /// assert_eq!(again, Err(farside::Error::KeyExists));
    /// # Ok::<(), farside::Error>(()) })?;
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub async fn insert(&mut self, table: &Table, key: &[u8], value: &[u8]) -> Result<()> {
        let done = self.tx.insert(table, key, value).await;
        self.note(done)
    }

    /// Writes a key that is there; [`Error::NoKey`] if it is not.
    ///
    /// ```
    /// # let connection = farside::Database::open("mem:")?.connect()?;
    /// # connection.block_on(async {
    /// # let table = connection.create_table("t").await?;
    /// let update = connection.transact(async |tx| tx.update(&table, b"key", b"value").await).await;
    /// assert_eq!(update, Err(farside::Error::NoKey));
    /// # Ok::<(), farside::Error>(()) })?;
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub async fn update(&mut self, table: &Table, key: &[u8], value: &[u8]) -> Result<()> {
        let done = self.tx.update(table, key, value).await;
        self.note(done)
    }

    /// Deletes a key; whether it was there.
    ///
    /// ```
    /// # let connection = farside::Database::open("mem:")?.connect()?;
    /// # connection.block_on(async {
    /// # let table = connection.create_table("t").await?;
    /// let was_there = connection.transact(async |tx| tx.delete(&table, b"key").await).await?;
    /// assert!(!was_there);
    /// # Ok::<(), farside::Error>(()) })?;
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub async fn delete(&mut self, table: &Table, key: &[u8]) -> Result<bool> {
        let done = self.tx.delete(table, key).await;
        self.note(done)
    }

    /// Adds to a number, which begins at 0; what it is then. Numbers are eight bytes, the lowest first.
    ///
    /// ```
    /// # let connection = farside::Database::open("mem:")?.connect()?;
    /// # connection.block_on(async {
    /// # let table = connection.create_table("t").await?;
    /// let count = connection.transact(async |tx| tx.add(&table, b"visits", 1).await).await?;
    /// assert_eq!(count, 1);
    /// # Ok::<(), farside::Error>(()) })?;
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub async fn add(&mut self, table: &Table, key: &[u8], by: i64) -> Result<i64> {
        let known = self.get_for_update(table, key).await?;
        let number = match known {
            None => 0,
            Some(bytes) => i64::from_le_bytes(bytes.as_slice().try_into().map_err(|_| {
                Error::Invalid(format!("a value of {} bytes; expected 8, a number", bytes.len()))
            })?),
        };
        let sum = number.checked_add(by);
        let sum = sum.ok_or_else(|| Error::Invalid(format!("{number} + {by} is too large")))?;
        self.put(table, key, &sum.to_le_bytes()).await?;
        Ok(sum)
    }

    /// Calls `each` with every key and value of a table, in no order, as they are at one moment.
    ///
    /// ```
    /// # let connection = farside::Database::open("mem:")?.connect()?;
    /// # connection.block_on(async {
    /// # let table = connection.create_table("t").await?;
    /// let mut rows = 0;
    /// connection.transact(async |tx| tx.scan(&table, |_, _| rows += 1).await).await?;
    /// assert_eq!(rows, 0);
    /// # Ok::<(), farside::Error>(()) })?;
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub async fn scan(&mut self, table: &Table, each: impl FnMut(&[u8], &[u8])) -> Result<()> {
        let done = self.tx.scan(table, each).await;
        self.note(done)
    }

    /// A table by its name.
    ///
    /// ```
    /// # let connection = farside::Database::open("mem:")?.connect()?;
    /// # connection.block_on(async {
    /// let found = connection.transact(async |tx| tx.table("t").await).await;
    /// assert!(found.is_err());
    /// # Ok::<(), farside::Error>(()) })?;
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub async fn table(&mut self, name: &str) -> Result<Table> {
        let found = self.tx.table(name).await;
        self.note(found)
    }

    /// Creates a table, which is there for others when this commits.
    ///
    /// ```
    /// # let connection = farside::Database::open("mem:")?.connect()?;
    /// # connection.block_on(async {
    /// connection
    ///     .transact(async |tx| {
    ///         let table = tx.create_table("t", farside::TableOptions::default()).await?;
    ///         tx.put(&table, b"from", b"the first moment").await
    ///     })
    ///     .await?;
    /// # Ok::<(), farside::Error>(()) })?;
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub async fn create_table(&mut self, name: &str, options: TableOptions) -> Result<Table> {
        let created = self.tx.create_table(name, &options).await;
        self.note(created)
    }

    pub(crate) async fn drop_table(&mut self, name: &str) -> Result<Table> {
        let dropped = self.tx.drop_table(name).await;
        self.note(dropped)
    }

    /// Commits. Returns the commit time, if anything was written.
    ///
    /// ```
    /// # let connection = farside::Database::open("mem:")?.connect()?;
    /// # connection.block_on(async {
    /// let tx = connection.begin().await?;
    /// assert_eq!(tx.commit().await?, None);
    /// # Ok::<(), farside::Error>(()) })?;
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub async fn commit(self) -> Result<Option<u64>> {
        Ok(self.tx.commit().await?)
    }

    /// Ends it without a trace.
    ///
    /// ```
    /// # let connection = farside::Database::open("mem:")?.connect()?;
    /// # connection.block_on(async {
    /// let tx = connection.begin().await?;
    /// tx.abort().await;
    /// # Ok::<(), farside::Error>(()) })?;
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub async fn abort(self) {
        self.tx.abort().await;
    }
}

/// Reads several keys in one step.
pub(crate) async fn read_many(
    tx: &mut Tx,
    table: &Table,
    keys: &[&[u8]],
) -> Result<Vec<Option<Vec<u8>>>, farside_index::Error> {
    let wants: Vec<Want<'_>> =
        keys.iter().map(|key| Want { table, key, intent: Intent::Read }).collect();
    let mut found = vec![None; keys.len()];
    tx.read(&wants, |number, _, value| found[number] = value.map(<[u8]>::to_vec)).await?;
    Ok(found)
}
