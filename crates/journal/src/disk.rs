//! Where files are kept. Tests have one that forgets what was not synced.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A directory of files.
pub trait Disk: std::fmt::Debug + Send + Sync {
    /// Where that is, for people.
    fn place(&self) -> String;

    /// Makes a new file of so many zeros.
    fn create(&self, name: &str, bytes: u64) -> io::Result<Box<dyn DiskFile>>;

    /// Opens a file, to read it.
    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>>;

    /// Gives a file another name, instead of one that has it.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Forgets a file.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// The names of all files.
    fn names(&self) -> io::Result<Vec<String>>;

    /// Names are as they are now after a loss of power, too.
    fn sync(&self) -> io::Result<()>;
}

/// A file.
pub trait DiskFile: Send {
    /// Writes some bytes.
    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()>;

    /// Reads as many bytes as there is room for, or up to its end; how many.
    fn read_at(&self, at: u64, bytes: &mut [u8]) -> io::Result<usize>;

    /// How long it is.
    fn len(&self) -> io::Result<u64>;

    /// Whether there is nothing in it.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// What was written is there after a loss of power, too.
    fn sync(&self) -> io::Result<()>;
}

/// A real directory. Nobody else may use it at the same time.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    /// Locked as long as this exists.
    handle: File,
}

impl Directory {
    /// Opens a directory, and makes it if there is none.
    pub fn open(path: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(path)?;
        let handle = File::open(path)?;
        match handle.try_lock() {
            Ok(()) => Ok(Directory { path: path.into(), handle }),
            Err(std::fs::TryLockError::WouldBlock) => Err(io::Error::new(
                io::ErrorKind::ResourceBusy,
                "another process uses this directory; give each node one of its own",
            )),
            Err(std::fs::TryLockError::Error(error)) => Err(error),
        }
    }
}

impl Disk for Directory {
    fn place(&self) -> String {
        self.path.display().to_string()
    }

    fn create(&self, name: &str, bytes: u64) -> io::Result<Box<dyn DiskFile>> {
        let path = self.path.join(name);
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
        // Room that is there when it is needed: a full disk is noticed here.
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes)?;
        Ok(Box::new(file))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(File::open(self.path.join(name))?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        std::fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        std::fs::remove_file(self.path.join(name))
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let entries = std::fs::read_dir(&self.path)?;
        entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
    }

    fn sync(&self) -> io::Result<()> {
        self.handle.sync_all()
    }
}

impl DiskFile for File {
    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_all_at(bytes, at)
    }

    fn read_at(&self, at: u64, bytes: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while done < bytes.len() {
            match FileExt::read_at(self, &mut bytes[done..], at + done as u64) {
                Ok(0) => break,
                Ok(some) => done += some,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn len(&self) -> io::Result<u64> {
        self.metadata().map(|known| known.len())
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }
}
