//! A disk that forgets what was not synced, at the will of a test.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use farside_journal::{Disk, DiskFile, SECTOR};

/// Random enough, and the same for a seed.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

#[derive(Clone, Default)]
struct FileState {
    now: Vec<u8>,
    safe: Vec<u8>,
    /// Sectors that were written since the last sync.
    unsafe_sectors: Vec<usize>,
}

#[derive(Clone)]
enum Renaming {
    Add(String, u64),
    Move(String, String),
    Remove(String),
}

#[derive(Clone, Default)]
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
            let file = names.remove(from).expect("it has that name");
            names.insert(to.clone(), file);
        }
        Renaming::Remove(name) => _ = names.remove(name),
    }
}

/// The disk. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Lossy(Arc<Mutex<State>>);

struct LossyFile {
    disk: Lossy,
    file: u64,
}

impl Lossy {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// The disk as it may be after a loss of power now: of what was not synced, any sectors may be there.
    pub(crate) fn after_power_loss(&self, random: &mut Random) -> Lossy {
        let mut state = self.state().clone();
        for file in state.files.values_mut() {
            let mut kept = std::mem::take(&mut file.safe);
            // Sometimes all, sometimes none.
            let share = random.below(5);
            for sector in std::mem::take(&mut file.unsafe_sectors) {
                if random.below(4) < share {
                    let (begin, end) =
                        (sector * SECTOR, ((sector + 1) * SECTOR).min(file.now.len()));
                    kept.resize(kept.len().max(end), 0);
                    kept[begin..end].copy_from_slice(&file.now[begin..end]);
                }
            }
            (file.now, file.safe) = (kept.clone(), kept);
        }
        let kept = random.below(state.renamings.len() as u64 + 1) as usize;
        let mut names = state.safe_names.clone();
        state.renamings.drain(..).take(kept).for_each(|change| apply(&mut names, &change));
        (state.names, state.safe_names) = (names.clone(), names);
        state.room = None;
        Lossy(Arc::new(Mutex::new(state)))
    }

    /// A copy of it, nothing lost.
    pub(crate) fn copy(&self) -> Lossy {
        Lossy(Arc::new(Mutex::new(self.state().clone())))
    }

    /// No more than so many bytes can be written from now on.
    pub(crate) fn fill_up(&self, room: u64) {
        self.state().room = Some(room);
    }

    pub(crate) fn length(&self, name: &str) -> u64 {
        let state = self.state();
        state.files[&state.names[name]].now.len() as u64
    }

    pub(crate) fn flip(&self, name: &str, bit: u64) {
        let mut state = self.state();
        let file = state.names[name];
        state.files.get_mut(&file).unwrap().now[(bit / 8) as usize] ^= 1 << (bit % 8);
    }
}

impl Disk for Lossy {
    fn create(&self, name: &str, bytes: u64) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.state();
        let file = state.next;
        state.next += 1;
        let content = FileState { now: vec![0; bytes as usize], ..FileState::default() };
        state.files.insert(file, content);
        let change = Renaming::Add(name.into(), file);
        apply(&mut state.names, &change);
        state.renamings.push(change);
        Ok(Box::new(LossyFile { disk: self.clone(), file }))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let file = self.state().names.get(name).copied().ok_or(io::ErrorKind::NotFound)?;
        Ok(Box::new(LossyFile { disk: self.clone(), file }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.change(Renaming::Move(from.into(), to.into()))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.change(Renaming::Remove(name.into()))
    }

    fn names(&self) -> io::Result<Vec<String>> {
        Ok(self.state().names.keys().cloned().collect())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.state();
        state.renamings.clear();
        state.safe_names = state.names.clone();
        Ok(())
    }
}

impl Lossy {
    fn change(&self, change: Renaming) -> io::Result<()> {
        let mut state = self.state();
        apply(&mut state.names, &change);
        state.renamings.push(change);
        Ok(())
    }
}

impl DiskFile for LossyFile {
    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.disk.state();
        if let Some(room) = &mut state.room {
            *room = room.checked_sub(bytes.len() as u64).ok_or(io::ErrorKind::StorageFull)?;
        }
        let file = state.files.get_mut(&self.file).unwrap();
        let (begin, end) = (at as usize, at as usize + bytes.len());
        file.now.resize(file.now.len().max(end), 0);
        file.now[begin..end].copy_from_slice(bytes);
        file.unsafe_sectors.extend(begin / SECTOR..end.div_ceil(SECTOR));
        Ok(())
    }

    fn read_at(&self, at: u64, bytes: &mut [u8]) -> io::Result<usize> {
        let state = self.disk.state();
        let now = &state.files[&self.file].now;
        let there = now.get(at as usize..).unwrap_or_default();
        let count = there.len().min(bytes.len());
        bytes[..count].copy_from_slice(&there[..count]);
        Ok(count)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.disk.state().files[&self.file].now.len() as u64)
    }

    fn sync(&self) -> io::Result<()> {
        // The power may go meanwhile.
        std::thread::sleep(std::time::Duration::from_micros(100));
        let mut state = self.disk.state();
        let file = state.files.get_mut(&self.file).unwrap();
        file.safe = file.now.clone();
        file.unsafe_sectors.clear();
        Ok(())
    }
}

pub(crate) fn memory(words: usize) -> Arc<Vec<AtomicU64>> {
    Arc::new((0..words).map(|_| AtomicU64::new(0)).collect())
}

pub(crate) fn contents(memory: &[AtomicU64]) -> Vec<u64> {
    memory.iter().map(|word| word.load(Ordering::Relaxed)).collect()
}
