//! An open database.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::rc::{Rc, Weak};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use farside_fabric::runtime::hurry;
use farside_fabric::{Worker, tcp};
use farside_index::Client;
use farside_txn::Agent;

use crate::connection::{Inner as ConnectionInner, RetryLimits};
use crate::opening::{Opened, fresh_id, open};
use crate::url::{Place, Url};
use crate::{Blocking, Connection, Error, Result, outcome, pool};

/// How a database is opened.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// What proves to memory nodes who this is, and how they are reached.
    pub network: tcp::Options,
    /// How long transactions are tried again.
    pub retry: RetryLimits,
}

/// An open database, for all threads of this process. Clones are the same one; it is closed with the last of them
/// and of their connections.
///
/// ```
/// use farside::Database;
///
/// let db = Database::open("mem:")?;
/// let there = db.clone();
/// std::thread::spawn(move || -> farside::Result<()> {
///     there.blocking()?.create_table("from-another-thread")?;
///     Ok(())
/// })
/// .join()
/// .unwrap()?;
/// assert!(db.blocking()?.table("from-another-thread").is_ok());
/// # Ok::<(), farside::Error>(())
/// ```
#[derive(Clone)]
pub struct Database {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) opened: Opened,
    pub(crate) retry: RetryLimits,
    number: u64,
    stop: Arc<AtomicBool>,
    keeper: Mutex<Option<JoinHandle<()>>>,
}

/// How often old outcomes are looked for.
const FORGETTING: Duration = Duration::from_secs(300);

/// How often the keeper of a database looks whether it is closed.
const LOOK: Duration = Duration::from_millis(5);

thread_local! {
    /// The connections of this thread, by the number of their database.
    static CONNECTIONS: RefCell<HashMap<u64, Weak<ConnectionInner>>> = RefCell::default();
}

impl Database {
    /// Opens the database that a URL names, and creates it if there is none:
    ///
    /// | URL | where |
    /// | --- | --- |
    /// | `mem:` | in this process, and gone with it |
    /// | `file:PATH` | in a file that processes of one machine share |
    /// | `tcp:HOST:PORT,HOST:PORT` | in memory nodes (`farside node`); everybody names the same ones in the same order |
    /// | `rdma:HOST:PORT,…` | the same over RDMA |
    /// | `etcd:HOST:PORT,…/NAME` | in a pool with a config store, whose nodes come and go |
    ///
    /// Behind a `?` there may be `copies=N` (of everything), `memory=SIZE` and `nodes=N` (of `mem:` and new
    /// files), and `lease=TIME` (how long a process may be silent before the others take it for dead, such as `200ms`;
    /// a second otherwise, and in a pool what its config store says), the same in all processes. Each process says for itself
    /// how much memory old versions may take that long snapshots still need, beyond its rings (`old-memory=SIZE`, 64 MiB), and
    /// what happens when that is not enough (`old-versions=`): writers wait (`block`), or are aborted (`abort`); or
    /// snapshots become too old (`truncate`), or do so as soon as something is written (`none`).
    ///
    /// For comparison, transactions can be made as the papers do (`protocol=ford`, `farm`, `drtm-h`; `mem:` also `ford-lv`), and
    /// without single techniques (`protocol=ford-without-backup-reads`): all who use the database have to say the same.
    ///
    /// ```
    /// let db = farside::Database::open("mem:?copies=3&memory=64MiB")?;
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub fn open(url: &str) -> Result<Self> {
        Self::open_with(url, &Options::default())
    }

    /// Opens a database, with options.
    ///
    /// ```
    /// use farside::{Database, Options, RetryLimits};
    ///
    /// let retry = RetryLimits { tries: 10, ..RetryLimits::default() };
    /// let db = Database::open_with("mem:", &Options { retry, ..Options::default() })?;
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub fn open_with(url: &str, options: &Options) -> Result<Self> {
        let parsed = Url::parse(url)?;
        let (answer, opened) = channel();
        // Other processes wait for other times.
        let seed = fresh_id()?.0;
        let stop = Arc::new(AtomicBool::new(false));
        let (network, stopped) = (options.network.clone(), Arc::clone(&stop));
        let keeper = std::thread::Builder::new()
            .name("farside-keeper".into())
            .spawn(move || keep(seed, &parsed, &network, &answer, &stopped))
            .map_err(|error| Error::Open { url: url.into(), why: error.to_string() })?;
        let opened = opened.recv();
        let opened = opened.unwrap_or_else(|_| Err(Error::Invalid("the keeper has ended".into())));
        let opened = opened.map_err(|error| match error {
            Error::Open { .. } => error,
            error => Error::Open { url: url.into(), why: error.to_string() },
        })?;
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        let inner = Inner {
            opened,
            retry: options.retry,
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
            stop,
            keeper: Mutex::new(Some(keeper)),
        };
        Ok(Database { inner: Arc::new(inner) })
    }

    /// This thread's way to the database. Up to 14 threads of a process have one at a time.
    ///
    /// ```
    /// # let db = farside::Database::open("mem:")?;
    /// let connection = db.connect()?;
    /// connection.block_on(async {
    ///     let table = connection.create_table("words").await?;
    ///     connection.transact(async |tx| tx.put(&table, b"hello", b"world").await).await
    /// })?;
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub fn connect(&self) -> Result<Connection> {
        let known = CONNECTIONS.with_borrow_mut(|connections| {
            connections.retain(|_, connection| connection.strong_count() > 0);
            connections.get(&self.inner.number).and_then(Weak::upgrade)
        });
        if let Some(inner) = known {
            return Ok(Connection { inner });
        }
        let worker = Worker::new(self.inner.number);
        let connection = worker.block_on(async {
            let connection = self.attach(&worker).await?;
            // Nobody may drive it for a while.
            connection.client().agent().rest().await;
            Ok::<_, Error>(connection)
        })?;
        CONNECTIONS.with_borrow_mut(|connections| {
            connections.insert(self.inner.number, Rc::downgrade(&connection.inner))
        });
        Ok(connection)
    }

    /// A way to the database for a worker of this thread: for those who have one already.
    pub async fn attach(&self, worker: &Worker) -> Result<Connection> {
        let agent = Agent::join(worker, self.inner.opened.parts(worker)).await?;
        Ok(Connection::new(self.clone(), agent))
    }

    /// This thread's way to the database, one call after the other.
    ///
    /// ```
    /// let db = farside::Database::open("mem:")?.blocking()?;
    /// assert!(db.tables()?.is_empty());
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub fn blocking(&self) -> Result<Blocking> {
        Ok(Blocking::new(self.connect()?))
    }
}

/// Keeps a database open: tells others what is read here, and looks after what this process has.
fn keep(
    seed: u64,
    url: &Url,
    network: &tcp::Options,
    answer: &Sender<Result<Opened>>,
    stop: &AtomicBool,
) {
    if matches!(url.place, Place::Pool(_)) {
        // It keeps the lease; others would put this process out.
        hurry();
    }
    let worker = Worker::patient(seed);
    worker.block_on(async {
        let opened = match url.place {
            Place::Pool(_) => pool::open(&worker, url, network).await,
            _ => open(&worker, url, network).await,
        };
        let opened = match opened {
            Ok(opened) => opened,
            Err(error) => {
                let _ = answer.send(Err(error));
                return;
            }
        };
        let agent = Agent::join(&worker, opened.parts(&worker)).await;
        let agent = match agent {
            Ok(agent) => agent,
            Err(error) => {
                let _ = answer.send(Err(error.into()));
                return;
            }
        };
        agent.look_after_pool();
        if answer.send(Ok(opened.clone())).is_err() {
            return;
        }
        let client = Client::new(Rc::clone(&agent));
        let scrubbing = client.scrub_now_and_then();
        let mut forgotten = worker.now();
        while !stop.load(Ordering::Acquire) {
            worker.sleep(LOOK).await;
            if worker.now() - forgotten > FORGETTING {
                forgotten = worker.now();
                // What cannot be forgotten now can be the next time.
                let _ = outcome::forget(&client, outcome::wall_clock()).await;
            }
        }
        // It has a part in the session as long as it is there.
        scrubbing.cancel().await;
        drop(client);
        agent.quiesce().await;
        drop(agent);
        opened.close(&worker).await;
    });
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        let keeper = self.keeper.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(keeper) = keeper {
            let _ = keeper.join();
        }
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database").finish_non_exhaustive()
    }
}
