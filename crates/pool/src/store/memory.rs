//! A store in the memory of this process, shared by its threads.

use std::sync::{Arc, Mutex, PoisonError};

use super::{ConfigStore, Pending, Stored};

/// For a pool that lives and dies with one process. Clones are the same store.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore {
    stored: Arc<Mutex<Stored>>,
}

impl MemoryStore {
    /// Does something with all of it at once.
    pub fn with<R>(&self, act: impl FnOnce(&mut Stored) -> R) -> R {
        act(&mut self.stored.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Stored {
    /// Without the configuration, if its revision is known.
    #[must_use]
    pub fn unless(mut self, known: u64) -> Self {
        if self.revision == known {
            self.config = None;
        }
        self
    }

    /// Replaces the configuration, if the revision is still that.
    pub fn swap(&mut self, revision: u64, config: &[u8]) -> bool {
        if self.revision != revision {
            return false;
        }
        self.revision += 1;
        self.config = Some(config.to_vec());
        true
    }

    /// Adds a petition, or replaces the one with its key.
    pub fn petition(&mut self, key: &str, what: &[u8]) {
        self.dismiss(key);
        self.petitions.push((key.to_owned(), what.to_vec()));
    }

    /// Forgets a petition.
    pub fn dismiss(&mut self, key: &str) {
        self.petitions.retain(|(known, _)| known != key);
    }
}

impl ConfigStore for MemoryStore {
    fn read(&self, known: u64) -> Pending<'_, Stored> {
        let stored = self.with(|stored| stored.clone().unless(known));
        Box::pin(async { Ok(stored) })
    }

    fn swap<'a>(&'a self, revision: u64, config: &'a [u8]) -> Pending<'a, bool> {
        let swapped = self.with(|stored| stored.swap(revision, config));
        Box::pin(async move { Ok(swapped) })
    }

    fn petition<'a>(&'a self, key: &'a str, what: &'a [u8]) -> Pending<'a, ()> {
        self.with(|stored| stored.petition(key, what));
        Box::pin(async { Ok(()) })
    }

    fn dismiss<'a>(&'a self, key: &'a str) -> Pending<'a, ()> {
        self.with(|stored| stored.dismiss(key));
        Box::pin(async { Ok(()) })
    }
}
