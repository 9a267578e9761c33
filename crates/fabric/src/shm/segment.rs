//! A segment: one memory node's control area and data, in a mapping that processes share.

use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};

use super::layout::{DATA_AT_BYTES, GONE, LIVE, MAGIC, VERSION, header};
use super::registry::Registry;
use super::syncer::Syncer;
use crate::memory::Mapping;
use crate::sync::{AtomicU64, Ordering};
use crate::{FabricError, NodeId, Persistence, Result};

/// A memory node in a shared mapping. Clones are the same mapping.
#[derive(Clone, Debug)]
pub struct Segment {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    control: Arc<Mapping>,
    data: Arc<Mapping>,
    node: NodeId,
    data_bytes: u64,
    persistence: Persistence,
    /// Lines are written back, and the system is not asked.
    by_lines: bool,
    path: PathBuf,
    /// Where it is persistent.
    syncer: Option<Syncer>,
    /// Keeps the file open: the path of a memfd leads through this descriptor.
    _file: OwnedFd,
}

impl Segment {
    /// A segment in memory, which lasts as long as a process has it open. Other processes of the
    /// same user open it by its [`path`](Segment::path).
    pub fn in_memory(node: NodeId, bytes: u64) -> Result<Self> {
        let what = || format!("creating {bytes} bytes of shared memory for {node}");
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("farside", flags)
            .map_err(|e| FabricError::setup(what(), e))?;
        let path = PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()));
        rustix::fs::ftruncate(&file, total(bytes)?).map_err(|e| FabricError::setup(what(), e))?;
        // Nobody can shrink it under another process's feet.
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&file, seals).map_err(|e| FabricError::setup(what(), e))?;
        Self::format(file, path, node, bytes, Persistence::Volatile)
    }

    /// A segment in a new file, or on a device such as `/dev/dax0.0` that holds none yet.
    pub fn create(path: &Path, node: NodeId, bytes: u64) -> Result<Self> {
        let what = || format!("creating {}", path.display());
        if let Ok(found) = std::fs::metadata(path) {
            if !found.file_type().is_char_device() {
                let why = "the file exists already; open it, or choose another path";
                return Err(FabricError::setup(what(), why));
            }
            return Self::on_device(path, node, bytes);
        }
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
            .map_err(|e| FabricError::setup(what(), e))?;
        let made = Self::in_file(file, path, node, bytes);
        if made.is_err() {
            let _ = std::fs::remove_file(path);
        }
        made
    }

    fn in_file(file: File, path: &Path, node: NodeId, bytes: u64) -> Result<Self> {
        // Blocks are reserved now: a full disk must be an error here, not a SIGBUS later.
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, total(bytes)?).map_err(|e| {
            FabricError::setup(format!("reserving {bytes} bytes in {}", path.display()), e)
        })?;
        let persistence = persistence_of(&file)?;
        Self::format(file.into(), path.into(), node, bytes, persistence)
    }

    /// A device holds whatever was there before: take it only if it begins with zeroes.
    fn on_device(path: &Path, node: NodeId, bytes: u64) -> Result<Self> {
        let file = open_file(path)?;
        total(bytes)?;
        let control = Mapping::shared(file.as_fd(), 0, DATA_AT_BYTES)?;
        let first = control.words()[..header::WORDS].iter();
        if first.into_iter().any(|word| word.load(Ordering::Relaxed) != 0) {
            let why = "the device is not empty; open the segment on it, or zero its first 2 MiB";
            return Err(FabricError::setup(format!("creating {}", path.display()), why));
        }
        drop(control);
        Self::format(file.into(), path.into(), node, bytes, Persistence::Volatile)
    }

    /// Opens a segment that another process made.
    pub fn open(path: &Path) -> Result<Self> {
        let what = || format!("opening {}", path.display());
        let file = open_file(path)?;
        let is_device = file
            .metadata()
            .map_err(|e| FabricError::setup(what(), e))?
            .file_type()
            .is_char_device();
        let there = if is_device { u64::MAX } else { length(&file)? };
        let no_segment = || FabricError::setup(what(), "this is not a Farside segment");
        if there < DATA_AT_BYTES {
            return Err(no_segment());
        }
        let control = Mapping::shared(file.as_fd(), 0, DATA_AT_BYTES)?;
        let word = |at: usize| control.words()[at].load(Ordering::Acquire);
        if word(header::MAGIC) != MAGIC {
            return Err(no_segment());
        }
        if word(header::VERSION) != VERSION {
            let why = format!(
                "its layout is version {}, this program knows version {VERSION}; use the program that made it",
                word(header::VERSION)
            );
            return Err(FabricError::setup(what(), why));
        }
        let bytes = word(header::DATA_BYTES);
        if total(bytes)? > there {
            let why = format!("it should have {bytes} bytes of data but is cut short; restore it");
            return Err(FabricError::setup(what(), why));
        }
        let node = NodeId(word(header::NODE) as u16);
        let persistence = if is_device { Persistence::Volatile } else { persistence_of(&file)? };
        Self::map(file.into(), path.into(), node, bytes, persistence)
    }

    fn format(
        file: OwnedFd,
        path: PathBuf,
        node: NodeId,
        bytes: u64,
        persistence: Persistence,
    ) -> Result<Self> {
        let control = Mapping::shared(file.as_fd(), 0, DATA_AT_BYTES)?;
        let header = control.words();
        header[header::VERSION].store(VERSION, Ordering::Relaxed);
        header[header::NODE].store(u64::from(node.0), Ordering::Relaxed);
        header[header::DATA_BYTES].store(bytes, Ordering::Relaxed);
        header[header::STATE].store(LIVE, Ordering::Relaxed);
        // Last: who sees it sees all of the above.
        header[header::MAGIC].store(MAGIC, Ordering::Release);
        if persistence != Persistence::Volatile {
            sync_new(&control, &file, &path)
                .map_err(|e| FabricError::setup(format!("syncing {}", path.display()), e))?;
        }
        Self::map(file, path, node, bytes, persistence)
    }

    fn map(
        file: OwnedFd,
        path: PathBuf,
        node: NodeId,
        data_bytes: u64,
        persistence: Persistence,
    ) -> Result<Self> {
        let control = Arc::new(Mapping::shared(file.as_fd(), 0, DATA_AT_BYTES)?);
        let persistent = match persistence {
            Persistence::Volatile => None,
            _ => Mapping::persistent(file.as_fd(), DATA_AT_BYTES, data_bytes)?,
        };
        let by_lines = persistent.is_some();
        let data = match persistent {
            Some(data) => data,
            None => Mapping::shared(file.as_fd(), DATA_AT_BYTES, data_bytes)?,
        };
        let data = Arc::new(data);
        let syncer = match persistence {
            Persistence::Volatile => None,
            _ => Some(Syncer::start(&file, &control, &data)?),
        };
        Ok(Segment {
            inner: Arc::new(Inner {
                control,
                data,
                node,
                data_bytes,
                persistence,
                by_lines,
                path,
                syncer,
                _file: file,
            }),
        })
    }

    /// The node that this segment is.
    pub fn node(&self) -> NodeId {
        self.inner.node
    }

    /// How many bytes of far memory it has.
    pub fn bytes(&self) -> u64 {
        self.inner.data_bytes
    }

    /// Where other processes open it. That of an in-memory segment ends with this process.
    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    /// Ends the node for everyone: its queues break, in all processes.
    pub fn retire(&self) {
        self.control()[header::STATE].store(GONE, Ordering::SeqCst);
    }

    /// Whether it has what was flushed after a loss of power.
    pub fn is_kept(&self) -> bool {
        self.inner.persistence != Persistence::Volatile
    }

    /// Whether it is kept without the system: by writing back lines.
    pub(super) fn is_kept_by_lines(&self) -> bool {
        self.inner.by_lines
    }

    pub(super) fn persistence(&self) -> Persistence {
        self.inner.persistence
    }

    #[inline]
    pub(super) fn check(&self) -> Result<()> {
        if !self.is_live() {
            return Err(FabricError::NodeGone(self.inner.node));
        }
        Ok(())
    }

    #[inline]
    pub(super) fn is_live(&self) -> bool {
        self.control()[header::STATE].load(Ordering::Relaxed) == LIVE
    }

    /// The words in front of the data.
    #[inline]
    pub(super) fn control(&self) -> &[AtomicU64] {
        self.inner.control.words()
    }

    /// The words that verbs address.
    #[inline]
    pub(super) fn data(&self) -> &[AtomicU64] {
        self.inner.data.words()
    }

    pub(super) fn registry(&self) -> Registry<'_> {
        Registry::new(self.control())
    }

    /// Who makes it persistent, where it is.
    #[inline]
    pub(super) fn syncer(&self) -> Option<&Syncer> {
        self.inner.syncer.as_ref()
    }
}

/// Makes a new file and its name persistent: a FLUSH of its data is worth nothing without.
fn sync_new(control: &Mapping, file: &OwnedFd, path: &Path) -> std::io::Result<()> {
    control.sync()?;
    rustix::fs::fsync(file)?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

fn open_file(path: &Path) -> Result<File> {
    let opened = OpenOptions::new().read(true).write(true).open(path);
    opened.map_err(|e| FabricError::setup(format!("opening {}", path.display()), e))
}

fn length(file: &File) -> Result<u64> {
    let metadata = file.metadata().map_err(|e| FabricError::setup("measuring the file", e))?;
    Ok(metadata.len())
}

/// The whole length of a segment with so many bytes of data.
fn total(bytes: u64) -> Result<u64> {
    let fits = bytes > 0 && bytes.is_multiple_of(8) && bytes <= 1 << 48;
    if !fits {
        let why = "give a size between 8 bytes and 256 TiB that is a multiple of 8";
        return Err(FabricError::setup(format!("memory of {bytes} bytes"), why));
    }
    Ok(DATA_AT_BYTES + bytes)
}

/// A file on a disk survives the power once it is synced; one on tmpfs is only memory.
fn persistence_of(file: &File) -> Result<Persistence> {
    const TMPFS: i64 = 0x0102_1994;
    const HUGETLBFS: i64 = 0x9584_58f6;
    let found = rustix::fs::fstatfs(file)
        .map_err(|e| FabricError::setup("asking for the file system", e))?;
    Ok(match found.f_type {
        TMPFS | HUGETLBFS => Persistence::Volatile,
        _ => Persistence::Unordered,
    })
}
