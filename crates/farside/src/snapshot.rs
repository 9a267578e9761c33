//! Snapshots.

use farside_index::Tx;

use crate::transaction::read_many;
use crate::{Result, Table};

/// One moment, to read from. Writers do not wait for it, nor abort it; old versions are kept while it is.
///
/// ```
/// # let connection = farside::Database::open("mem:")?.connect()?;
/// # connection.block_on(async {
/// let table = connection.create_table("t").await?;
/// let mut moment = connection.snapshot().await?;
/// assert_eq!(moment.get(&table, b"key").await?, None);
/// # Ok::<(), farside::Error>(()) })?;
/// # Ok::<(), farside::Error>(())
/// ```
#[derive(Debug)]
pub struct Snapshot {
    tx: Tx,
}

impl Snapshot {
    pub(crate) fn new(tx: Tx) -> Self {
        Snapshot { tx }
    }

    /// The value of a key, if it was there.
    ///
    /// ```
    /// # let connection = farside::Database::open("mem:")?.connect()?;
    /// # connection.block_on(async {
    /// # let table = connection.create_table("t").await?;
    /// assert_eq!(connection.snapshot().await?.get(&table, b"key").await?, None);
    /// # Ok::<(), farside::Error>(()) })?;
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub async fn get(&mut self, table: &Table, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let found = self.tx.get(table, key).await?;
        self.tx.forget_reads();
        Ok(found)
    }

    /// The values of several keys, read together.
    ///
    /// ```
    /// # let connection = farside::Database::open("mem:")?.connect()?;
    /// # connection.block_on(async {
    /// # let table = connection.create_table("t").await?;
    /// let both = connection.snapshot().await?.get_many(&table, &[b"a", b"b"]).await?;
    /// assert_eq!(both.len(), 2);
    /// # Ok::<(), farside::Error>(()) })?;
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub async fn get_many(
        &mut self,
        table: &Table,
        keys: &[&[u8]],
    ) -> Result<Vec<Option<Vec<u8>>>> {
        let found = read_many(&mut self.tx, table, keys).await?;
        self.tx.forget_reads();
        Ok(found)
    }

    /// Calls `each` with every key and value of a table, in no order.
    ///
    /// ```
    /// # let connection = farside::Database::open("mem:")?.connect()?;
    /// # connection.block_on(async {
    /// # let table = connection.create_table("t").await?;
    /// connection.snapshot().await?.scan(&table, |key, value| println!("{key:?}: {value:?}")).await?;
    /// # Ok::<(), farside::Error>(()) })?;
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub async fn scan(&mut self, table: &Table, each: impl FnMut(&[u8], &[u8])) -> Result<()> {
        self.tx.scan(table, each).await?;
        self.tx.forget_reads();
        Ok(())
    }
}
