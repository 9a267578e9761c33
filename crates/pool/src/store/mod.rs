//! Where the configuration is kept, and changed by comparing and swapping.

mod etcd;
mod file;
mod memory;
mod reader;
mod threaded;
mod url;

pub use etcd::EtcdStore;
pub use file::FileStore;
pub use memory::MemoryStore;
pub(crate) use reader::Reader;
pub use url::open;

use std::future::Future;
use std::pin::Pin;

use crate::config::Config;

/// What the store has.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Stored {
    /// Changes with every change of the configuration; 0 where there is none.
    pub revision: u64,
    /// The configuration; left out where the reader has it.
    pub config: Option<Vec<u8>>,
    /// What processes and nodes ask the manager for, by key.
    pub petitions: Vec<(String, Vec<u8>)>,
}

impl Stored {
    /// The configuration, if there is one that can be read.
    pub fn newest(&self) -> Option<Config> {
        Config::decode(self.config.as_deref()?).ok()
    }
}

/// Why the store did not do as it was told.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Nobody answered, or in part: what was to be done may have been done.
    #[error(
        "the configuration store does not answer: {0}; what was asked of it may have been done"
    )]
    Unreachable(String),
    /// What it has is not ours.
    #[error("the configuration store has something else: {0}")]
    Foreign(String),
}

/// A future of the store.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + 'a>>;

/// A config store: one document that is replaced by comparing and swapping, and petitions beside it.
///
/// All of it is linearizable. An operation that fails may have taken effect.
pub trait ConfigStore {
    /// What is there. The configuration is left out if its revision is `known`.
    fn read(&self, known: u64) -> Pending<'_, Stored>;

    /// Replaces the configuration, if the revision is still that; `false` if not.
    fn swap<'a>(&'a self, revision: u64, config: &'a [u8]) -> Pending<'a, bool>;

    /// Asks the manager for something; a petition of the same key is replaced.
    fn petition<'a>(&'a self, key: &'a str, what: &'a [u8]) -> Pending<'a, ()>;

    /// A petition was heard.
    fn dismiss<'a>(&'a self, key: &'a str) -> Pending<'a, ()>;
}
