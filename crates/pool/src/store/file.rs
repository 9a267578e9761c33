//! A store in a file, for the processes of one machine.
//!
//! Changes are made under a lock (`flock` on a file beside it), written to a new file and renamed, so
//! that whoever reads finds a whole one, whatever dies when.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::threaded::{BlockingStore, Threaded};
use super::{ConfigStore, Pending, StoreError, Stored};

/// The config store of a pool on one machine. Clones are the same store.
#[derive(Clone, Debug)]
pub struct FileStore {
    store: Threaded<Blocking>,
}

impl FileStore {
    /// At this path. The file is made with the first pool; one that is something else is refused when it
    /// is read, and stays as it is.
    pub fn new(path: &Path) -> Self {
        FileStore { store: Threaded::new(Blocking { path: path.to_owned() }) }
    }
}

#[derive(Debug)]
struct Blocking {
    path: PathBuf,
}

/// What the file has.
#[derive(Serialize, Deserialize)]
struct Document {
    /// Tells it from other files.
    farside_pool: u32,
    revision: u64,
    config: Option<String>,
    petitions: Vec<(String, String)>,
    checksum: u64,
}

const VERSION: u32 = 1;

impl Document {
    fn sum(&self) -> u64 {
        let parts = [self.config.as_deref().unwrap_or_default()];
        let petitions = self.petitions.iter().flat_map(|(key, what)| [key.as_str(), what]);
        let bytes = parts.into_iter().chain(petitions).flat_map(|part| part.bytes().chain([0]));
        bytes.fold(self.revision ^ 0x5bd1_e995, |sum, byte| {
            (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        })
    }
}

impl Blocking {
    fn failed(&self, what: &str, error: &std::io::Error) -> StoreError {
        StoreError::Unreachable(format!("{what} {}: {error}", self.path.display()))
    }

    fn beside(&self, suffix: &str) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(suffix);
        name.into()
    }

    fn load(&self) -> Result<Stored, StoreError> {
        let bytes = match fs::read(&self.path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Stored::default());
            }
            Err(error) => return Err(self.failed("reading", &error)),
        };
        let foreign = |why: String| {
            StoreError::Foreign(format!(
                "{} {why}; give another path, or restore it from a copy",
                self.path.display()
            ))
        };
        let document: Document = serde_json::from_slice(&bytes)
            .map_err(|e| foreign(format!("is not the configuration of a pool ({e})")))?;
        if document.farside_pool != VERSION {
            return Err(foreign(format!("has format {}", document.farside_pool)));
        }
        if document.checksum != document.sum() {
            return Err(foreign("is damaged: its checksum does not fit".into()));
        }
        let petitions = document.petitions.into_iter().map(|(key, what)| (key, what.into_bytes()));
        Ok(Stored {
            revision: document.revision,
            config: document.config.map(String::into_bytes),
            petitions: petitions.collect(),
        })
    }

    fn save(&self, stored: Stored) -> Result<(), StoreError> {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let mut document = Document {
            farside_pool: VERSION,
            revision: stored.revision,
            config: stored.config.map(text),
            petitions: stored.petitions.into_iter().map(|(key, what)| (key, text(what))).collect(),
            checksum: 0,
        };
        document.checksum = document.sum();
        let bytes = serde_json::to_vec(&document).expect("plain data");
        let new = self.beside(".new");
        let write = || {
            let mut file = File::create(&new)?;
            file.write_all(&bytes)?;
            file.sync_all()?;
            fs::rename(&new, &self.path)?;
            let directory = self.path.parent().filter(|path| !path.as_os_str().is_empty());
            File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
        };
        write().map_err(|e| self.failed("writing", &e))
    }

    /// Changes what is there, while nobody else does.
    fn change<R>(&self, act: impl FnOnce(&mut Stored) -> R) -> Result<R, StoreError> {
        let path = self.beside(".lock");
        let open = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
        let lock = open.map_err(|e| self.failed("locking", &e))?;
        flock(&lock, FlockOperation::LockExclusive)
            .map_err(|e| self.failed("locking", &e.into()))?;
        let mut stored = self.load()?;
        let before = stored.clone();
        let result = act(&mut stored);
        if stored != before {
            self.save(stored)?;
        }
        Ok(result)
    }
}

impl BlockingStore for Blocking {
    fn read(&mut self, known: u64) -> Result<Stored, StoreError> {
        Ok(self.load()?.unless(known))
    }

    fn swap(&mut self, revision: u64, config: &[u8]) -> Result<bool, StoreError> {
        self.change(|stored| stored.swap(revision, config))
    }

    fn petition(&mut self, key: &str, what: &[u8]) -> Result<(), StoreError> {
        self.change(|stored| stored.petition(key, what))
    }

    fn dismiss(&mut self, key: &str) -> Result<(), StoreError> {
        self.change(|stored| stored.dismiss(key))
    }
}

impl ConfigStore for FileStore {
    fn read(&self, known: u64) -> Pending<'_, Stored> {
        self.store.read(known)
    }

    fn swap<'a>(&'a self, revision: u64, config: &'a [u8]) -> Pending<'a, bool> {
        self.store.swap(revision, config)
    }

    fn petition<'a>(&'a self, key: &'a str, what: &'a [u8]) -> Pending<'a, ()> {
        self.store.petition(key, what)
    }

    fn dismiss<'a>(&'a self, key: &'a str) -> Pending<'a, ()> {
        self.store.dismiss(key)
    }
}
