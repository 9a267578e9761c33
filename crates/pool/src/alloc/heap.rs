//! The heap of one thread: slabs of its own, from which it allocates without a message.

use std::collections::BTreeMap;

use farside_fabric::{Result, Worker, probe};

use super::slab::{CHUNK_BYTES, Slab};
use super::table::{Entry, Place};
use super::{Bitmap, FREED, SizeClass};
use crate::{Addr, RegionId};

/// What a thread allocates from. `owner` must be its own alone, and never be used again by another.
#[derive(Debug)]
pub struct Heap {
    pub(super) worker: Worker,
    pub(super) owner: u64,
    pub(super) places: Vec<Place>,
    pub(super) slabs: Vec<Option<Slab>>,
    /// For each place the slab of each chunk, plus one; 0 where it is not ours.
    by_chunk: Vec<Vec<u32>>,
    /// The slabs of each class that have free objects.
    with_room: Vec<Vec<u32>>,
    /// Where to look for free chunks next.
    next_place: usize,
    /// Something ended with an error: a slab may be ours that is not known here, and not by all copies.
    pub(super) unsure: bool,
    /// What was in use, with its first word, in slabs that were adopted, of the sort in which nobody expects anything.
    pub(super) strays: Vec<(Addr, u64)>,
    /// Where to look next for slabs that nobody has: a place, and a chunk.
    pub(super) next_abandoned: (usize, u64),
}

/// How much of a class a heap has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Space {
    /// Slabs.
    pub slabs: usize,
    /// Objects that are free in them.
    pub free: usize,
    /// Objects that are in use.
    pub used: usize,
}

impl Heap {
    /// A heap of nothing yet, which takes its slabs from these regions.
    pub fn new(worker: &Worker, owner: u64, places: Vec<Place>) -> Self {
        assert!(owner != 0 && owner < 1 << 48, "an owner has 1 to 48 bits");
        let by_chunk = places.iter().map(|place| vec![0; place.chunks() as usize]).collect();
        Heap {
            worker: worker.clone(),
            owner,
            places,
            slabs: Vec::new(),
            by_chunk,
            with_room: vec![Vec::new(); SizeClass::COUNT],
            next_place: 0,
            unsure: false,
            strays: Vec::new(),
            next_abandoned: (0, 0),
        }
    }

    /// What was found in use, with its first word, in slabs of the dead that were adopted since this was last asked: those
    /// of the sort in which nobody expects anything. The layer above knows which of them nobody needs.
    pub fn take_strays(&mut self) -> Vec<(Addr, u64)> {
        std::mem::take(&mut self.strays)
    }

    /// An object of at least so many bytes, from slabs at hand; `None` if those are full:
    /// [`Heap::refill`] then. Its first word is 0, and whoever gets it writes another there.
    #[inline]
    pub fn allocate(&mut self, class: SizeClass) -> Option<Addr> {
        let room = &mut self.with_room[class.number() as usize];
        let slab = self.slabs[*room.last()? as usize].as_mut().expect("noted slabs exist");
        let number = slab.free.take().expect("noted slabs have room");
        slab.empty_since = None;
        if slab.free.count() == 0 {
            room.pop();
        }
        Addr::new(self.places[slab.region].region, slab.offset(number))
    }

    /// The same, in one region.
    pub fn allocate_in(&mut self, region: RegionId, class: SizeClass) -> Option<Addr> {
        let place = self.place_of(region)?;
        let room = &mut self.with_room[class.number() as usize];
        let is_there = |index: &u32| {
            self.slabs[*index as usize].as_ref().is_some_and(|slab| slab.region == place)
        };
        let noted = room.iter().position(is_there)?;
        let last = room.len() - 1;
        room.swap(noted, last);
        self.allocate(class)
    }

    /// Gives back an object of ours whose first word is 0 again; `false` if its slab is somebody
    /// else's: [`Heap::free_elsewhere`] then.
    #[inline]
    pub fn free(&mut self, addr: Addr) -> bool {
        let Some(index) = self.slab_at(addr) else { return false };
        let slab = self.slabs[index].as_mut().expect("known slabs exist");
        let Some(number) = slab.number(addr.offset()) else { return false };
        if slab.free.count() == 0 {
            self.with_room[slab.class.number() as usize].push(index as u32);
        }
        slab.free.give(number);
        true
    }

    /// Whether an object is in a slab of ours.
    pub fn has_at(&self, addr: Addr) -> bool {
        self.slab_at(addr).is_some()
    }

    #[inline]
    fn slab_at(&self, addr: Addr) -> Option<usize> {
        let place = self.place_of(addr.region())?;
        let chunk = (addr.offset() / CHUNK_BYTES) as usize;
        let index = *self.by_chunk[place].get(chunk)?;
        (index > 0).then(|| index as usize - 1)
    }

    #[inline]
    fn place_of(&self, region: RegionId) -> Option<usize> {
        self.places.iter().position(|place| place.region == region)
    }

    /// A region has other replicas now. What is ours is known here, and stays; hints that were on the old
    /// primary only are lost: [`Heap::scrub`] finds what they told of. One that is new is used from now on. Whether there
    /// is another primary.
    pub fn moved(&mut self, place: Place) -> bool {
        let Some(index) = self.place_of(place.region) else {
            self.by_chunk.push(vec![0; place.chunks() as usize]);
            self.places.push(place);
            return false;
        };
        let primary = |place: &Place| (place.replicas[0].0.node(), place.replicas[0].1);
        let moved = primary(&self.places[index]) != primary(&place);
        self.places[index] = place;
        moved
    }

    /// Claims another slab; `false` if no region has room for one. The next one will be in another region:
    /// objects, and those who ask for them, are spread over all nodes.
    pub async fn refill(&mut self, class: SizeClass) -> Result<bool> {
        for step in 0..self.places.len() {
            let region = (self.next_place + step) % self.places.len();
            if self.refill_from(region, class).await? {
                self.next_place = region + 1;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Claims another slab in one region; `false` if that has no room for one.
    pub async fn refill_in(&mut self, region: RegionId, class: SizeClass) -> Result<bool> {
        match self.place_of(region) {
            Some(place) => self.refill_from(place, class).await,
            None => Ok(false),
        }
    }

    async fn refill_from(&mut self, region: usize, class: SizeClass) -> Result<bool> {
        let refilled = self.try_refill(region, class).await;
        self.unsure |= refilled.is_err();
        refilled
    }

    async fn try_refill(&mut self, region: usize, class: SizeClass) -> Result<bool> {
        // Others may claim at the same time; then what is left is looked at again.
        loop {
            let table = self.places[region].read_table(&self.worker).await?;
            if self.adopt_one(region, &table, class).await? {
                return Ok(true);
            }
            let Some(chunk) = find_run(&table, class.chunks() as usize) else {
                return Ok(false);
            };
            if self.places[region].claim(&self.worker, chunk, self.entry(class)).await? {
                let free = Bitmap::free(class.objects());
                self.adopt(Slab { region, chunk, class, free, empty_since: None });
                return Ok(true);
            }
            probe!("another heap was faster");
        }
    }

    /// What the head of a slab of ours says.
    pub(super) fn entry(&self, class: SizeClass) -> Entry {
        Entry { owner: self.owner, class, inner: false }
    }

    /// The slab of ours that begins with a chunk.
    pub(super) fn slab_of(&self, region: usize, chunk: u64) -> Option<&Slab> {
        let index = self.by_chunk[region][chunk as usize].checked_sub(1)?;
        self.slabs[index as usize].as_ref()
    }

    /// Whether a chunk is known to be ours.
    pub(super) fn has(&self, region: usize, chunk: usize) -> bool {
        self.by_chunk[region][chunk] != 0
    }

    /// A slab has free objects again.
    pub(super) fn note_room(&mut self, class: SizeClass, index: usize) {
        self.with_room[class.number() as usize].push(index as u32);
    }

    /// Makes a slab one of ours.
    pub(super) fn adopt(&mut self, slab: Slab) -> usize {
        let vacant = self.slabs.iter().position(Option::is_none);
        let index = vacant.unwrap_or_else(|| {
            self.slabs.push(None);
            self.slabs.len() - 1
        });
        for chunk in slab.chunk..slab.chunk + slab.class.chunks() {
            self.by_chunk[slab.region][chunk as usize] = index as u32 + 1;
        }
        if slab.free.count() > 0 {
            self.with_room[slab.class.number() as usize].push(index as u32);
        }
        self.slabs[index] = Some(slab);
        index
    }

    /// Forgets a slab, which is given back.
    pub(super) fn forget(&mut self, index: usize) -> Option<Slab> {
        let slab = self.slabs[index].take()?;
        for chunk in slab.chunk..slab.chunk + slab.class.chunks() {
            self.by_chunk[slab.region][chunk as usize] = 0;
        }
        let room = &mut self.with_room[slab.class.number() as usize];
        room.retain(|noted| *noted as usize != index);
        Some(slab)
    }

    /// Frees an object of a slab that is not ours, whose first word is `header`; `false` if it was not
    /// any more.
    pub async fn free_elsewhere(&self, addr: Addr, header: u64) -> Result<bool> {
        let Some(place) = self.place_of(addr.region()).map(|place| &self.places[place]) else {
            return Ok(false);
        };
        // The copies first: everybody decides by the primary, and once that says so the place may be another object's.
        place.swap(&self.worker, &place.replicas[1..], addr.offset(), (header, FREED)).await?;
        place.swap(&self.worker, &place.joining, addr.offset(), (header, FREED)).await?;
        let (primary, base) = &place.replicas[0];
        let mut round = self.worker.round();
        let found = round.to(primary).cas(base + addr.offset(), header, FREED);
        let chunk = addr.offset() / CHUNK_BYTES;
        let table = round.to(primary).read(*base, chunk as usize * 8 + 8);
        let done = round.ring().await?;
        if done[found] != header {
            return Ok(false);
        }
        // The hint: lost if the owner changes now, and found by a scrub then.
        let words = &done[table];
        let entry = |chunk: usize| Entry::from_word(words[chunk]);
        let first = (0..=chunk as usize).rev().find(|at| entry(*at).is_none_or(|e| !e.inner));
        let Some((chunk, entry)) = first.and_then(|at| Some((at as u64, entry(at)?))) else {
            return Ok(true);
        };
        let free = Bitmap::taken(entry.class.objects());
        let slab = Slab { region: 0, chunk, class: entry.class, free, empty_since: None };
        if let Some(number) = slab.number(addr.offset()) {
            let at = base + chunk * CHUNK_BYTES + number as u64 / 64 * 8;
            drop(done);
            let mut round = self.worker.round();
            // Nobody else sets this bit, so adding is setting.
            round.to(primary).faa(at, 1 << (number % 64));
            round.ring().await?;
        }
        Ok(true)
    }

    /// How much there is of each class.
    pub fn space(&self) -> BTreeMap<u64, Space> {
        let mut space: BTreeMap<u64, Space> = BTreeMap::new();
        for slab in self.slabs.iter().flatten() {
            let entry = space.entry(slab.class.bytes()).or_default();
            entry.slabs += 1;
            entry.free += slab.free.count();
            entry.used += slab.class.objects() - slab.free.count();
        }
        space
    }
}

/// The first run of so many free chunks, behind the table's own.
fn find_run(table: &[u64], chunks: usize) -> Option<u64> {
    let mut run = 0;
    for (chunk, word) in table.iter().enumerate().skip(1) {
        run = if *word == 0 { run + 1 } else { 0 };
        if run == chunks {
            return Some((chunk + 1 - chunks) as u64);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::find_run;

    #[test]
    fn runs_are_found_behind_the_table() {
        assert_eq!(find_run(&[0, 0, 0, 0], 1), Some(1));
        assert_eq!(find_run(&[0, 7, 0, 0], 2), Some(2));
        assert_eq!(find_run(&[0, 0, 7, 0], 2), None);
        assert_eq!(find_run(&[0], 1), None);
    }
}
