//! A thread's way to a database.

use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

use farside_fabric::runtime::Task;
use farside_fabric::{Counts, Time, Worker};
use farside_index::{Client, TableOptions};
use farside_txn::Agent;

use crate::{Database, Error, Level, Moment, Result, Snapshot, Table, Transaction};

/// How long a transaction is tried again while others are in its way.
///
/// ```
/// let patient = farside::RetryLimits { time: std::time::Duration::from_secs(60), ..Default::default() };
/// assert!(patient.tries > 1);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RetryLimits {
    /// How often.
    pub tries: u32,
    /// For how long.
    pub time: Duration,
}

impl Default for RetryLimits {
    fn default() -> Self {
        RetryLimits { tries: 10_000, time: Duration::from_secs(10) }
    }
}

/// A thread's way to a database. Clones are the same one, and stay on the thread.
///
/// Its methods are asynchronous, so that one thread can have many transactions under way; they make progress
/// in [`Connection::block_on`].
#[derive(Clone)]
pub struct Connection {
    pub(crate) inner: Rc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) client: Rc<Client>,
    db: Database,
}

/// The longest pause between two tries.
const LONGEST_PAUSE: Duration = Duration::from_millis(1);

impl Connection {
    pub(crate) fn new(db: Database, agent: Rc<Agent>) -> Self {
        Connection { inner: Rc::new(Inner { client: Client::new(agent), db }) }
    }

    /// Runs something until it is done, with all that was spawned on this connection.
    ///
    /// ```
    /// # let connection = farside::Database::open("mem:")?.connect()?;
    /// let sum = connection.block_on(async { 1 + 2 });
    /// assert_eq!(sum, 3);
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        let agent = self.inner.client.agent();
        agent.wake();
        self.worker().block_on(async {
            let output = future.await;
            // Nobody else gives the locks back that are on their way.
            agent.rest().await;
            output
        })
    }

    /// Starts something beside: it makes progress in [`Connection::block_on`]. Dropping the handle cancels it.
    ///
    /// ```
    /// # let connection = farside::Database::open("mem:")?.connect()?;
    /// let beside = connection.spawn(async { 4 });
    /// assert_eq!(connection.block_on(beside), 4);
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub fn spawn<F>(&self, future: F) -> Task<F::Output>
    where
        F: Future + 'static,
        F::Output: 'static,
    {
        self.worker().spawn(future)
    }

    /// The worker of this thread.
    pub fn worker(&self) -> &Worker {
        self.inner.client.worker()
    }

    /// The tables' own interface, below this one.
    pub fn client(&self) -> &Rc<Client> {
        &self.inner.client
    }

    /// How many bytes of the database's memory are free for anything, and how many there are, copies aside.
    ///
    /// ```
    /// # let connection = farside::Database::open("mem:")?.connect()?;
    /// let (free, all) = connection.block_on(connection.space())?;
    /// assert!(0 < free && free < all);
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub async fn space(&self) -> Result<(u64, u64)> {
        Ok(self.inner.client.agent().usage().await?)
    }

    /// The verbs of this connection so far.
    pub fn counts(&self) -> Counts {
        self.inner.client.agent().tally().total()
    }

    /// Begins a transaction. It is aborted when it is dropped.
    ///
    /// ```
    /// # let connection = farside::Database::open("mem:")?.connect()?;
    /// # connection.block_on(async {
    /// let table = connection.create_table("t").await?;
    /// let mut tx = connection.begin().await?;
    /// tx.put(&table, b"key", b"value").await?;
    /// tx.commit().await?;
    /// # Ok::<(), farside::Error>(()) })?;
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub async fn begin(&self) -> Result<Transaction> {
        Ok(Transaction::new(self.inner.client.begin().await?))
    }

    /// A moment to read from, as long as it is kept: nobody aborts it, and it is in nobody's way. While it is kept,
    /// old versions are.
    ///
    /// ```
    /// # let connection = farside::Database::open("mem:")?.connect()?;
    /// # connection.block_on(async {
    /// let table = connection.create_table("t").await?;
    /// let mut before = connection.snapshot().await?;
    /// assert_eq!(before.get(&table, b"key").await?, None);
    /// connection.transact(async |tx| tx.put(&table, b"key", b"value").await).await?;
    /// assert_eq!(before.get(&table, b"key").await?, None);
    /// # Ok::<(), farside::Error>(()) })?;
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub async fn snapshot(&self) -> Result<Snapshot> {
        self.check_snapshots()?;
        let mut tx = self.inner.client.begin().await?;
        tx.take_snapshot().await?;
        Ok(Snapshot::new(tx))
    }

    /// A moment that was [shared](Snapshot::share), by this process or another one, to be read here, too. As long as the snapshot
    /// is kept that it was shared from, this succeeds; afterwards perhaps, or [`Error::SnapshotTooOld`].
    ///
    /// ```
    /// # let connection = farside::Database::open("mem:")?.connect()?;
    /// # connection.block_on(async {
    /// let table = connection.create_table("t").await?;
    /// let before = connection.snapshot().await?;
    /// connection.transact(async |tx| tx.put(&table, b"key", b"value").await).await?;
    /// let mut here_too = connection.snapshot_at(before.share()).await?;
    /// assert_eq!(here_too.get(&table, b"key").await?, None);
    /// # Ok::<(), farside::Error>(()) })?;
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub async fn snapshot_at(&self, moment: Moment) -> Result<Snapshot> {
        self.check_snapshots()?;
        let mut tx = self.inner.client.begin().await?;
        tx.take_snapshot_of(moment.into()).await?;
        Ok(Snapshot::new(tx))
    }

    /// Protocols without opacity read what is newest, and look again when they commit; a snapshot never commits.
    fn check_snapshots(&self) -> Result<()> {
        let protocol = self.inner.client.agent().protocol();
        let why = || format!("the protocol {} has no snapshots; expected farside", protocol.name);
        if protocol.opacity { Ok(()) } else { Err(Error::Invalid(why())) }
    }

    /// The value of a key now, if it is there. Nobody is in its way, and it is in nobody's.
    ///
    /// ```
    /// # let connection = farside::Database::open("mem:")?.connect()?;
    /// # connection.block_on(async {
    /// let table = connection.create_table("t").await?;
    /// assert_eq!(connection.get(&table, b"key").await?, None);
    /// # Ok::<(), farside::Error>(()) })?;
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub async fn get(&self, table: &Table, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.transact(async |tx| tx.get(table, key).await).await
    }

    /// Runs a transaction, again and again while others are in its way. What `body` returns is returned once it
    /// has committed; if it returns an error of its own, nothing is changed.
    ///
    /// ```
    /// # let connection = farside::Database::open("mem:")?.connect()?;
    /// # connection.block_on(async {
    /// let accounts = connection.create_table("accounts").await?;
    /// let left = connection
    ///     .transact(async |tx| {
    ///         tx.add(&accounts, b"alice", -10).await?;
    ///         tx.add(&accounts, b"bob", 10).await
    ///     })
    ///     .await?;
    /// assert_eq!(left, 10);
    /// # Ok::<(), farside::Error>(()) })?;
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub async fn transact<T, E: From<Error>>(
        &self,
        body: impl AsyncFnMut(&mut Transaction) -> Result<T, E>,
    ) -> Result<T, E> {
        self.transact_at(Level::Strict, body).await
    }

    /// The same with another promise than usual: see [`Level`]. Weaker ones wait less where clocks of several machines have to
    /// agree, and are less often in each other's way.
    ///
    /// ```
    /// use farside::Level;
    ///
    /// # let connection = farside::Database::open("mem:")?.connect()?;
    /// # connection.block_on(async {
    /// let table = connection.create_table("t").await?;
    /// connection
    ///     .transact_at(Level::Snapshot, async |tx| {
    ///         let seen = tx.get(&table, b"hits").await?.unwrap_or_default();
    ///         tx.put(&table, b"copy", &seen).await
    ///     })
    ///     .await?;
    /// # Ok::<(), farside::Error>(()) })?;
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub async fn transact_at<T, E: From<Error>>(
        &self,
        level: Level,
        mut body: impl AsyncFnMut(&mut Transaction) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut tries = Tries::at(self, level);
        loop {
            let mut tx = tries.begin().await?;
            let done = match body(&mut tx).await {
                Ok(output) => match tx.commit().await {
                    Ok(_) => return Ok(output),
                    Err(error) => (Passing::of(&error), E::from(error)),
                },
                Err(error) => {
                    let why = tx.why_again();
                    tx.abort().await;
                    (why, error)
                }
            };
            tries.again(done).await?;
        }
    }

    /// Creates a table.
    ///
    /// ```
    /// # let connection = farside::Database::open("mem:")?.connect()?;
    /// # connection.block_on(async {
    /// connection.create_table("t").await?;
    /// assert!(matches!(connection.create_table("t").await, Err(farside::Error::TableExists(_))));
    /// # Ok::<(), farside::Error>(()) })?;
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub async fn create_table(&self, name: &str) -> Result<Table> {
        self.create_table_with(name, TableOptions { value_bytes: 64 }).await
    }

    /// Creates a table, with options.
    ///
    /// ```
    /// # let connection = farside::Database::open("mem:")?.connect()?;
    /// # connection.block_on(async {
    /// let options = farside::TableOptions { value_bytes: 200 };
    /// connection.create_table_with("t", options).await?;
    /// # Ok::<(), farside::Error>(()) })?;
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub async fn create_table_with(&self, name: &str, options: TableOptions) -> Result<Table> {
        self.transact(async |tx| tx.create_table(name, options).await).await
    }

    /// A table by its name.
    ///
    /// ```
    /// # let connection = farside::Database::open("mem:")?.connect()?;
    /// # connection.block_on(async {
    /// assert!(matches!(connection.table("t").await, Err(farside::Error::NoTable(_))));
    /// # Ok::<(), farside::Error>(()) })?;
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub async fn table(&self, name: &str) -> Result<Table> {
        self.transact(async |tx| tx.table(name).await).await
    }

    /// A table by its name, created if there is none.
    ///
    /// ```
    /// # let connection = farside::Database::open("mem:")?.connect()?;
    /// # connection.block_on(async {
    /// let table = connection.open_table("t").await?;
    /// assert_eq!(connection.open_table("t").await?, table);
    /// # Ok::<(), farside::Error>(()) })?;
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub async fn open_table(&self, name: &str) -> Result<Table> {
        self.transact(async |tx| match tx.table(name).await {
            Err(Error::NoTable(_)) => tx.create_table(name, TableOptions { value_bytes: 64 }).await,
            known => known,
        })
        .await
    }

    /// The names of all tables.
    ///
    /// ```
    /// # let connection = farside::Database::open("mem:")?.connect()?;
    /// # connection.block_on(async {
    /// connection.create_table("t").await?;
    /// assert_eq!(connection.tables().await?, ["t"]);
    /// # Ok::<(), farside::Error>(()) })?;
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub async fn tables(&self) -> Result<Vec<String>> {
        let mut tx = self.inner.client.begin().await?;
        let tables = tx.tables().await?;
        Ok(tables.into_iter().map(|(name, _)| name).collect())
    }

    /// Drops a table with all that is in it. Whoever still has it gets [`Error::NoTable`] from then on.
    ///
    /// ```
    /// # let connection = farside::Database::open("mem:")?.connect()?;
    /// # connection.block_on(async {
    /// let table = connection.create_table("t").await?;
    /// connection.drop_table("t").await?;
    /// let put = connection.transact(async |tx| tx.put(&table, b"k", b"v").await).await;
    /// assert!(matches!(put, Err(farside::Error::NoTable(_))));
    /// # Ok::<(), farside::Error>(()) })?;
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub async fn drop_table(&self, name: &str) -> Result<()> {
        let table = self.transact(async |tx| tx.drop_table(name).await).await?;
        Ok(self.inner.client.purge(&table).await?)
    }
}

/// Why something may succeed when it is tried again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Passing {
    /// Others were in the way.
    Conflict,
    /// A node did not answer, or the pool could not be used.
    Node,
}

impl Passing {
    pub(crate) fn of(error: &Error) -> Option<Self> {
        match error {
            Error::Conflict(_) | Error::SnapshotTooOld => Some(Passing::Conflict),
            error => error.is_passing().then_some(Passing::Node),
        }
    }
}

/// The tries of a transaction.
pub(crate) struct Tries<'c> {
    connection: &'c Connection,
    start: Time,
    tries: u32,
    /// Kept from one try to the next.
    age: Option<u64>,
    /// When the try at hand began.
    begun: Time,
    level: Level,
}

impl<'c> Tries<'c> {
    pub(crate) fn at(connection: &'c Connection, level: Level) -> Self {
        let start = connection.worker().now();
        Tries { connection, start, tries: 0, age: None, begun: start, level }
    }

    fn limits(&self) -> RetryLimits {
        self.connection.inner.db.inner.retry
    }

    fn is_late(&self) -> bool {
        self.connection.worker().now() - self.start > self.limits().time
    }

    /// Begins. While the pool changes nobody can: that is waited for.
    pub(crate) async fn begin(&mut self) -> Result<Transaction> {
        loop {
            let begun = self.connection.inner.client.begin_aged(self.age).await;
            match begun.map_err(Error::from) {
                Err(Error::TimedOut(_) | Error::NodeLost(_)) if !self.is_late() => {
                    self.connection.worker().sleep(LONGEST_PAUSE).await;
                }
                begun => {
                    let mut tx = begun?;
                    tx.set_level(self.level);
                    self.age = Some(tx.age());
                    self.begun = self.connection.worker().now();
                    return Ok(Transaction::new(tx));
                }
            }
        }
    }

    /// After one that failed because others were in the way, or a node did not answer, waits a little; any other error is
    /// returned.
    pub(crate) async fn again<E: From<Error>>(
        &mut self,
        (why, error): (Option<Passing>, E),
    ) -> Result<(), E> {
        let Some(why) = why else { return Err(error) };
        self.tries += 1;
        if self.tries >= self.limits().tries || self.is_late() {
            return Err(match why {
                Passing::Conflict => Error::Conflict(self.tries).into(),
                Passing::Node => error,
            });
        }
        let worker = self.connection.worker();
        // As long as a try takes, and longer each time.
        let took = (worker.now() - self.begun).max(Duration::from_micros(1));
        let most = (took * (1 << self.tries.min(8))).min(LONGEST_PAUSE);
        worker.sleep(Duration::from_nanos(worker.random_below(most.as_nanos() as u64))).await;
        Ok(())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let agent = Rc::clone(self.client.agent());
        self.client.worker().block_on(agent.quiesce());
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}
