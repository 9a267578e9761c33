//! A thread's way to tables: its part in a session, and what it remembers.

use std::cell::RefCell;
use std::rc::Rc;

use farside_fabric::Worker;
use farside_fabric::runtime::Task;
use farside_txn::{Agent, Scrub};

use crate::addresses::Addresses;
use crate::directory::Directory;
use crate::{Error, Table, Tx, tag};

/// A thread's way to tables.
#[derive(Debug)]
pub struct Client {
    agent: Rc<Agent>,
    pub(crate) addresses: RefCell<Addresses>,
    pub(crate) directory: RefCell<Directory>,
}

/// What a thread remembers of tables: hints, which may be stale.
#[derive(Clone, Debug)]
pub struct Memory {
    addresses: Addresses,
    directory: Directory,
}

impl Client {
    /// For a thread that belongs to a session.
    pub fn new(agent: Rc<Agent>) -> Rc<Self> {
        let (addresses, directory) = (RefCell::default(), RefCell::default());
        Rc::new(Client { agent, addresses, directory })
    }

    /// What this thread remembers, for another one.
    pub fn memory(&self) -> Memory {
        let addresses = self.addresses.borrow().clone();
        Memory { addresses, directory: self.directory.borrow().clone() }
    }

    /// Remembers what another thread does, and nothing else.
    pub fn remember(&self, memory: Memory) {
        *self.addresses.borrow_mut() = memory.addresses;
        *self.directory.borrow_mut() = memory.directory;
    }

    /// Bytes of an address that a thread remembers.
    pub const ADDRESS_BYTES: usize = Addresses::HINT_BYTES;

    /// How many addresses of rows this thread remembers.
    pub fn known_addresses(&self) -> usize {
        self.addresses.borrow().known()
    }

    /// Whether this thread remembers where a row was.
    pub fn knows(&self, table: &Table, key: &[u8]) -> bool {
        self.addresses.borrow().get(table.id, table.hash(key)).is_some()
    }

    /// The thread's part in the session.
    pub fn agent(&self) -> &Rc<Agent> {
        &self.agent
    }

    /// The thread.
    pub fn worker(&self) -> &Worker {
        self.agent.worker()
    }

    /// Looks at all objects, on all replicas. `go_on` hears how far it is, and may end it.
    pub async fn scrub(&self, go_on: impl FnMut(&Scrub) -> bool) -> Result<Scrub, Error> {
        Ok(self.agent.scrub(tag::names, go_on).await?)
    }

    /// Does that now and then, beside other things, until the task is dropped.
    pub fn scrub_now_and_then(&self) -> Task<()> {
        self.agent.scrub_now_and_then(tag::names)
    }

    /// Begins a transaction.
    pub async fn begin(self: &Rc<Self>) -> Result<Tx, Error> {
        self.begin_aged(None).await
    }

    /// Begins a transaction again, with the age that it had: so that its turn comes some day.
    pub async fn begin_aged(self: &Rc<Self>, age: Option<u64>) -> Result<Tx, Error> {
        let txn = self.agent.begin(age).await?;
        self.directory.borrow_mut().use_since(txn.floor());
        Ok(Tx::new(Rc::clone(self), txn))
    }
}
