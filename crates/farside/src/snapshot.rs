//! Snapshots.

use farside_index::Tx;

use crate::transaction::read_many;
use crate::{Error, Result, Table};

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

/// A moment, to be handed to other tasks, processes or machines, as text or as a number.
///
/// ```
/// let moment = farside::Moment::from(17);
/// assert_eq!(moment.to_string().parse(), Ok(moment));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Moment(u64);

impl From<u64> for Moment {
    fn from(time: u64) -> Self {
        Moment(time)
    }
}

impl From<Moment> for u64 {
    fn from(moment: Moment) -> u64 {
        moment.0
    }
}

impl std::fmt::Display for Moment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::str::FromStr for Moment {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let time = text.parse().map_err(|_| Error::Invalid(format!("'{text}' is no moment")));
        time.map(Moment)
    }
}

impl Snapshot {
    pub(crate) fn new(tx: Tx) -> Self {
        Snapshot { tx }
    }

    /// The moment, for others to [read from](crate::Connection::snapshot_at), too: other tasks, processes or machines. Keep this
    /// snapshot until they have begun.
    ///
    /// ```
    /// # let connection = farside::Database::open("mem:")?.connect()?;
    /// # connection.block_on(async {
    /// let mut tasks = Vec::new();
    /// let moment = connection.snapshot().await?;
    /// for _ in 0..4 {
    ///     let (there, shared) = (connection.clone(), moment.share());
    ///     tasks.push(connection.spawn(async move { there.snapshot_at(shared).await.is_ok() }));
    /// }
    /// for task in tasks {
    ///     assert!(task.await);
    /// }
    /// # Ok::<(), farside::Error>(()) })?;
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub fn share(&self) -> Moment {
        Moment(self.tx.snapshot().unwrap_or(0))
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
        Ok(self.tx.sweep(table, each).await?)
    }

    /// All tables that there were, by their names.
    pub(crate) async fn tables(&mut self) -> Result<Vec<(String, Table)>> {
        let tables = self.tx.tables().await?;
        self.tx.forget_reads();
        Ok(tables)
    }
}
