//! Remote persistent memory as `drtmx.txt` §2.3.5 has it: places that are allocated, read, written, and written so that they survive
//! the power. No locks, no transactions, nothing that is changed in place by an atomic (H8): whoever needs those has objects.
//!
//! | hint | here |
//! | --- | --- |
//! | H5, H6 | places begin at multiples of 64 bytes, and of 256 if they are that long; a write is always of whole units, so that neither PCIe nor the memory reads before it writes |
//! | H9 | a persistent write and its FLUSH are in one doorbell: one round trip, to all replicas at once |
//!
//! A place is taken when something is written there: the first word of the first unit says so, and tells whoever takes over the
//! slabs of the dead. So what was allocated and never written is free again after a crash.

use farside_fabric::{Counts, FabricError, Phase, Result, Tally, Worker};

use crate::Addr;
use crate::alloc::{Heap, MAX_OBJECT_BYTES, Place, SizeClass};

/// What PCIe moves at once, and what persistent memory writes at once.
const LINE: u64 = 64;
const UNIT: u64 = 256;

/// The first word of a place that is in use.
const TAKEN: u64 = 0xfa51_de0b_1ec7_0009;
const TAKEN_BYTES: u64 = 8;

/// The most bytes that a place has room for.
pub const MOST_BYTES: u64 = MAX_OBJECT_BYTES - TAKEN_BYTES;

/// A place, and how many bytes it is for. There is no other way to one than [`PersistentMemory::alloc`], and
/// [`Pointer::from_words`] for one that was written down: what is not aligned would change what is beside it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pointer {
    addr: Addr,
    bytes: u64,
}

impl Pointer {
    /// How many bytes it is for.
    pub fn bytes(self) -> u64 {
        self.bytes
    }

    /// To be written down somewhere.
    pub fn to_words(self) -> [u64; 2] {
        [self.addr.to_word(), self.bytes]
    }

    /// One that was written down; `None` if it cannot be one.
    pub fn from_words([addr, bytes]: [u64; 2]) -> Option<Self> {
        let addr = Addr::from_word(addr);
        class_of(bytes)?.may_begin_at(addr.offset()).then_some(Pointer { addr, bytes })
    }
}

/// How places and writes of so many bytes are aligned and padded.
fn unit(bytes: u64) -> u64 {
    if bytes < UNIT { LINE } else { UNIT }
}

/// So many bytes in whole units.
fn padded(bytes: u64) -> u64 {
    bytes.next_multiple_of(unit(bytes))
}

fn wrong(what: String, why: &str) -> FabricError {
    FabricError::Setup { what, why: why.into() }
}

/// The class of places for so many bytes; `None` if there is none.
fn class_of(bytes: u64) -> Option<SizeClass> {
    let whole = bytes.checked_add(TAKEN_BYTES).filter(|_| (1..=MOST_BYTES).contains(&bytes))?;
    let class = SizeClass::of(padded(whole))?;
    // Between 256 and 512 bytes there is a class that is no multiple of 256.
    let even = class.bytes().is_multiple_of(unit(whole));
    Some(if even { class } else { SizeClass::of(class.bytes() + LINE)? }.raw())
}

/// Memory on nodes that keep what is flushed.
///
/// ```
/// use farside_fabric::{NodeId, Worker, local};
/// use farside_pool::{RegionId, alloc::Place, persistent::PersistentMemory};
///
/// let (worker, bytes) = (Worker::new(1), 1 << 20);
/// let cluster = local::Cluster::new(1, bytes)?;
/// let replicas = vec![(cluster.client().connect(&worker, NodeId(0))?, 0)];
/// let place = Place { region: RegionId(0), bytes, replicas, joining: Vec::new() };
/// let mut memory = PersistentMemory::new(&worker, 1, vec![place]);
/// worker.block_on(async {
///     let at = memory.alloc(5).await?.expect("there is room");
///     memory.write(at, b"hello").await?;
///     assert_eq!(memory.read(at).await?, b"hello");
///     // Nothing is persistent in the memory of a process.
///     assert!(memory.pwrite(at, b"again").await.is_err());
/// #   Ok::<(), farside_fabric::FabricError>(())
/// })?;
/// # Ok::<(), farside_fabric::FabricError>(())
/// ```
#[derive(Debug)]
pub struct PersistentMemory {
    worker: Worker,
    heap: Heap,
    places: Vec<Place>,
    tally: Tally,
}

/// Reads and writes; what the heap needs is not counted.
const ACCESS: Phase = Phase(1);

impl PersistentMemory {
    /// Memory of some regions. `owner` is this thread's alone, and never used again by another.
    pub fn new(worker: &Worker, owner: u64, places: Vec<Place>) -> Self {
        let heap = Heap::new(worker, owner, places.clone());
        PersistentMemory { worker: worker.clone(), heap, places, tally: Tally::default() }
    }

    /// What reads and writes took so far.
    pub fn counts(&self) -> Counts {
        self.tally.phase(ACCESS)
    }

    /// A place for so many bytes; `None` if there is no room for it.
    pub async fn alloc(&mut self, bytes: u64) -> Result<Option<Pointer>> {
        let Some(class) = class_of(bytes) else { return Ok(None) };
        let pointer = |addr| Some(Pointer { addr, bytes });
        if let Some(addr) = self.heap.allocate(class) {
            return Ok(pointer(addr));
        }
        if !self.heap.refill(class).await? {
            return Ok(None);
        }
        // Whose a slab is must be durable before anything in it is: another one would take it for free.
        self.flush().await?;
        Ok(self.heap.allocate(class).and_then(pointer))
    }

    /// What was written there last, from the primary; zeroes behind what was written.
    pub async fn read(&self, at: Pointer) -> Result<Vec<u8>> {
        let place = self.place(at)?;
        let (primary, base) = &place.replicas[0];
        let mut round = self.worker.round().counted(&self.tally, ACCESS);
        let whole = (TAKEN_BYTES + at.bytes).next_multiple_of(8) as usize;
        let words = round.to(primary).read(base + at.addr.offset(), whole);
        let done = round.ring().await?;
        let bytes = done[words][1..].iter().flat_map(|word| word.to_le_bytes());
        Ok(bytes.take(at.bytes as usize).collect())
    }

    /// Writes it on all replicas. It may be gone, or there in part, after a loss of power.
    pub async fn write(&self, at: Pointer, bytes: &[u8]) -> Result<()> {
        self.write_all(at, bytes, false).await
    }

    /// Writes it on all replicas, and it stays: one round trip.
    pub async fn pwrite(&self, at: Pointer, bytes: &[u8]) -> Result<()> {
        self.write_all(at, bytes, true).await
    }

    /// Gives a place back; one that is free already stays so. After a loss of power it may be in use again.
    pub async fn free(&mut self, at: Pointer) -> Result<()> {
        let place = self.place(at)?;
        if !self.heap.has_at(at.addr) {
            self.heap.free_elsewhere(at.addr, TAKEN).await?;
            return Ok(());
        }
        let (primary, base) = &place.replicas[0];
        let mut round = self.worker.round();
        let header = round.to(primary).read(base + at.addr.offset(), TAKEN_BYTES as usize);
        if round.ring().await?[header][0] != TAKEN {
            return Ok(());
        }
        // The copies first: everybody decides by the primary.
        for some in [&place.replicas[1..], &place.replicas[..1]] {
            let mut round = self.worker.round();
            for (queue, base) in some {
                round.to(queue).write(base + at.addr.offset(), &[0]);
            }
            if !some.is_empty() {
                round.ring().await?;
            }
        }
        self.heap.free(at.addr);
        Ok(())
    }

    async fn write_all(&self, at: Pointer, bytes: &[u8], persistent: bool) -> Result<()> {
        if bytes.len() as u64 > at.bytes {
            let what = format!("writing {} bytes to a place of {}", bytes.len(), at.bytes);
            return Err(wrong(what, "allocate a larger one"));
        }
        let place = self.place(at)?;
        let volatile = place.replicas.iter().find(|(queue, _)| !queue.keeps_what_is_flushed());
        if let (true, Some((queue, _))) = (persistent, volatile) {
            let what = format!("writing to {} so that it stays", queue.node());
            return Err(wrong(what, "it keeps nothing: start it with --data"));
        }
        // All of it is written, so that nothing of what was there before is left.
        let mut words = vec![0; padded(TAKEN_BYTES + at.bytes) as usize / 8];
        words[0] = TAKEN;
        for (word, bytes) in words[1..].iter_mut().zip(bytes.chunks(8)) {
            let mut whole = [0; 8];
            whole[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_le_bytes(whole);
        }
        let mut round = self.worker.round().counted(&self.tally, ACCESS);
        for (queue, base) in &place.replicas {
            let mut bell = round.to(queue);
            bell.write(base + at.addr.offset(), &words);
            if persistent {
                bell.flush();
            }
        }
        round.ring().await?;
        Ok(())
    }

    async fn flush(&self) -> Result<()> {
        let mut round = self.worker.round();
        for (queue, _) in self.places.iter().flat_map(|place| &place.replicas) {
            if queue.keeps_what_is_flushed() {
                round.to(queue).flush();
            }
        }
        round.ring().await?;
        Ok(())
    }

    fn place(&self, at: Pointer) -> Result<&Place> {
        let found = self.places.iter().find(|place| place.region == at.addr.region());
        let ends = at.addr.offset() + padded(TAKEN_BYTES + at.bytes);
        found.filter(|place| ends <= place.bytes).ok_or_else(|| {
            wrong("a pointer".into(), "it is of another pool: there is no such place here")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_of_whole_units_whatever_is_asked_for() {
        for bytes in (1..5000).chain([MOST_BYTES - 1, MOST_BYTES]) {
            let (whole, class) = (bytes + TAKEN_BYTES, class_of(bytes).unwrap().bytes());
            let unit = if whole < 256 { 64 } else { 256 };
            assert!(class.is_multiple_of(unit) && class >= padded(whole), "{bytes}: {class}");
            assert!(padded(whole).is_multiple_of(unit) && padded(whole) < whole + unit);
        }
        assert_eq!((class_of(0), class_of(MOST_BYTES + 1), class_of(u64::MAX)), (None, None, None));
    }

    #[test]
    fn pointers_that_cannot_be_are_refused() {
        let at = |offset| Addr::new(crate::RegionId(1), offset).unwrap().to_word();
        assert!(Pointer::from_words([at(0x10440), 8]).is_some());
        assert!(Pointer::from_words([at(0x10420), 8]).is_none());
        assert!(Pointer::from_words([at(0x10500), 500]).is_none(), "between two places");
        assert!(Pointer::from_words([at(0x10600), 500]).is_some());
        assert!(Pointer::from_words([at(0x400), 8]).is_none(), "that is the table of slabs");
        assert!(Pointer::from_words([at(0x10500), u64::MAX]).is_none());
    }
}
