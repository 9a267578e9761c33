//! A disk that forgets what was not synced, at the will of a test: sectors of files, and what happened to names.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::{Disk, DiskFile, SECTOR};

/// How long a sync takes: the power may go meanwhile.
const SYNC: Duration = Duration::from_micros(100);

/// Random enough, and the same for a seed.
#[derive(Debug)]
pub struct Random(pub u64);

impl Random {
    /// A number below a limit.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

#[derive(Clone, Default, Debug)]
struct FileState {
    length: u64,
    /// As far as anything was written.
    now: Vec<u8>,
    safe: Vec<u8>,
    /// Sectors that were written since the last sync.
    unsafe_sectors: Vec<usize>,
}

impl FileState {
    /// A sector is safe as it is now.
    fn keep(&mut self, sector: usize) {
        let (begin, end) = (sector * SECTOR, ((sector + 1) * SECTOR).min(self.now.len()));
        self.safe.resize(self.safe.len().max(end), 0);
        self.safe[begin..end].copy_from_slice(&self.now[begin..end]);
    }
}

#[derive(Clone, Debug)]
enum Renaming {
    Add(String, u64),
    Move(String, String),
    Remove(String),
}

#[derive(Clone, Default, Debug)]
struct State {
    files: BTreeMap<u64, FileState>,
    names: BTreeMap<String, u64>,
    safe_names: BTreeMap<String, u64>,
    /// What happened to names since the last sync of the directory.
    renamings: Vec<Renaming>,
    next: u64,
    /// Bytes that may still be written.
    room: Option<u64>,
}

fn apply(names: &mut BTreeMap<String, u64>, change: &Renaming) {
    match change {
        Renaming::Add(name, file) => _ = names.insert(name.clone(), *file),
        Renaming::Move(from, to) => {
            if let Some(file) = names.remove(from) {
                names.insert(to.clone(), file);
            }
        }
        Renaming::Remove(name) => _ = names.remove(name),
    }
}

/// The disk. Clones share it.
#[derive(Clone, Default, Debug)]
pub struct Lossy {
    state: Arc<Mutex<State>>,
    /// There is no power any more: nothing is written or synced.
    off: Arc<AtomicBool>,
}

struct LossyFile {
    disk: Lossy,
    file: u64,
}

impl Lossy {
    /// An empty one, which loses its power together with all that have the same switch.
    pub fn with_switch(off: &Arc<AtomicBool>) -> Self {
        Lossy { off: Arc::clone(off), ..Lossy::default() }
    }

    fn look(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// To change something, as long as there is power.
    fn state(&self) -> io::Result<MutexGuard<'_, State>> {
        let state = self.look();
        match self.off.load(Ordering::SeqCst) {
            true => Err(io::Error::other("there is no power")),
            false => Ok(state),
        }
    }

    /// The disk as it may be after a loss of power now: of what was not synced, any sectors may be there. It has another switch.
    #[must_use]
    pub fn after_power_loss(&self, random: &mut Random, off: &Arc<AtomicBool>) -> Lossy {
        let mut state = self.look().clone();
        for file in state.files.values_mut() {
            // Sometimes all, sometimes none.
            let share = random.below(5);
            for sector in std::mem::take(&mut file.unsafe_sectors) {
                if random.below(4) < share {
                    file.keep(sector);
                }
            }
            file.now.clone_from(&file.safe);
        }
        let kept = random.below(state.renamings.len() as u64 + 1) as usize;
        let mut names = state.safe_names.clone();
        state.renamings.drain(..).take(kept).for_each(|change| apply(&mut names, &change));
        (state.names, state.safe_names) = (names.clone(), names);
        let State { files, names, .. } = &mut state;
        files.retain(|number, _| names.values().any(|file| file == number));
        state.room = None;
        Lossy { state: Arc::new(Mutex::new(state)), off: Arc::clone(off) }
    }

    /// A copy of it, nothing lost.
    #[must_use]
    pub fn copy(&self) -> Lossy {
        Lossy { state: Arc::new(Mutex::new(self.look().clone())), off: Arc::default() }
    }

    /// No more than so many bytes can be written from now on.
    pub fn fill_up(&self, room: u64) {
        self.look().room = Some(room);
    }

    /// How long a file is.
    pub fn length(&self, name: &str) -> u64 {
        let state = self.look();
        state.files[&state.names[name]].length
    }

    /// Damages a bit of a file.
    pub fn flip(&self, name: &str, bit: u64) {
        let mut state = self.look();
        let file = state.names[name];
        let now = state.files.get_mut(&file).map(|file| &mut file.now);
        if let Some(now) = now {
            let at = (bit / 8) as usize;
            now.resize(now.len().max(at + 1), 0);
            now[at] ^= 1 << (bit % 8);
        }
    }

    fn change(&self, change: Renaming) -> io::Result<()> {
        let mut state = self.state()?;
        apply(&mut state.names, &change);
        state.renamings.push(change);
        Ok(())
    }
}

impl Disk for Lossy {
    fn place(&self) -> String {
        "a disk that forgets".into()
    }

    fn create(&self, name: &str, bytes: u64) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.state()?;
        let file = state.next;
        state.next += 1;
        state.files.insert(file, FileState { length: bytes, ..FileState::default() });
        let change = Renaming::Add(name.into(), file);
        apply(&mut state.names, &change);
        state.renamings.push(change);
        Ok(Box::new(LossyFile { disk: self.clone(), file }))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let file = self.look().names.get(name).copied().ok_or(io::ErrorKind::NotFound)?;
        Ok(Box::new(LossyFile { disk: self.clone(), file }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.change(Renaming::Move(from.into(), to.into()))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.change(Renaming::Remove(name.into()))
    }

    fn names(&self) -> io::Result<Vec<String>> {
        Ok(self.look().names.keys().cloned().collect())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.state()?;
        state.renamings.clear();
        state.safe_names = state.names.clone();
        Ok(())
    }
}

impl LossyFile {
    fn change(&self, change: impl FnOnce(&mut FileState)) -> io::Result<()> {
        let mut state = self.disk.state()?;
        state.files.get_mut(&self.file).map(change).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl DiskFile for LossyFile {
    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        if let Some(room) = &mut self.disk.look().room {
            *room = room.checked_sub(bytes.len() as u64).ok_or(io::ErrorKind::StorageFull)?;
        }
        self.change(|file| {
            let (begin, end) = (at as usize, at as usize + bytes.len());
            file.length = file.length.max(end as u64);
            file.now.resize(file.now.len().max(end), 0);
            file.now[begin..end].copy_from_slice(bytes);
            file.unsafe_sectors.extend(begin / SECTOR..end.div_ceil(SECTOR));
        })
    }

    fn read_at(&self, at: u64, bytes: &mut [u8]) -> io::Result<usize> {
        let state = self.disk.look();
        let file = &state.files[&self.file];
        let count = file.length.saturating_sub(at).min(bytes.len() as u64) as usize;
        let there = file.now.get(at as usize..).unwrap_or_default();
        let written = there.len().min(count);
        bytes[..written].copy_from_slice(&there[..written]);
        bytes[written..count].fill(0);
        Ok(count)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.disk.look().files[&self.file].length)
    }

    fn sync(&self) -> io::Result<()> {
        std::thread::park_timeout(SYNC);
        self.change(|file| {
            for sector in std::mem::take(&mut file.unsafe_sectors) {
                file.keep(sector);
            }
        })
    }
}
