//! What others have freed is collected, and empty slabs go back to their regions.

use farside_fabric::{Result, probe};

use super::heap::Heap;
use super::slab::CHUNK_BYTES;
use super::{FREED, SizeClass};

/// When an old address can no longer be used: what the layer above knows of its readers.
pub trait SafePoint {
    /// A moment: now.
    fn now(&self) -> u64;

    /// Whether everybody who could have got an address before that moment is done.
    fn has_passed(&self, moment: u64) -> bool;
}

impl Heap {
    /// Takes back objects that others have freed and hinted at; how many.
    pub async fn collect(&mut self) -> Result<usize> {
        let mut collected = 0;
        for index in 0..self.slabs.len() {
            let Some(slab) = &self.slabs[index] else { continue };
            let (primary, base) = self.places[slab.region].replicas[0].clone();
            let (at, words) = (base + slab.chunk * CHUNK_BYTES, slab.class.objects().div_ceil(64));
            let mut round = self.worker.round();
            let head = round.to(&primary).read(at, words * 8);
            let hints: Vec<u64> = round.ring().await?[head].to_vec();
            let mut hinted = Vec::new();
            for (word, bits) in hints.into_iter().enumerate().filter(|(_, bits)| *bits != 0) {
                let mut round = self.worker.round();
                // Subtracting what was read leaves what was set meanwhile.
                round.to(&primary).faa(at + word as u64 * 8, bits.wrapping_neg());
                round.ring().await?;
                hinted
                    .extend((0..64).filter(|bit| bits >> bit & 1 == 1).map(|bit| word * 64 + bit));
            }
            collected += self.take_back(index, &hinted).await?;
        }
        Ok(collected)
    }

    /// Looks at every object of every slab for those that were freed without a hint; how many.
    pub async fn scrub(&mut self) -> Result<usize> {
        let mut found = 0;
        for index in 0..self.slabs.len() {
            let Some(slab) = &self.slabs[index] else { continue };
            let all: Vec<usize> = (0..slab.class.objects()).collect();
            found += self.take_back(index, &all).await?;
        }
        Ok(found)
    }

    /// Of these objects of a slab, frees those that are marked so.
    pub(super) async fn take_back(&mut self, index: usize, numbers: &[usize]) -> Result<usize> {
        let Some(slab) = &self.slabs[index] else { return Ok(0) };
        let (region, class) = (slab.region, slab.class);
        let place = &self.places[region];
        let offsets: Vec<u64> = numbers.iter().map(|number| slab.offset(*number)).collect();
        let headers = place.read_words(&self.worker, &offsets).await?;
        let freed: Vec<usize> =
            (0..numbers.len()).filter(|position| headers[*position] == FREED).collect();
        let was_full = slab.free.count() == 0;
        let cleared: Vec<u64> = freed.iter().map(|position| offsets[*position]).collect();
        place.clear(&self.worker, &cleared).await?;
        let slab = self.slabs[index].as_mut().expect("seen above");
        freed.iter().for_each(|position| slab.free.give(numbers[*position]));
        if was_full && !freed.is_empty() {
            self.note_room(class, index);
        }
        Ok(freed.len())
    }

    /// Gives back slabs that are empty since a moment that everybody is past, except one of each class;
    /// how many.
    pub async fn tidy(&mut self, safe: &dyn SafePoint) -> Result<usize> {
        if self.unsure {
            self.settle().await?;
            self.unsure = false;
        }
        let mut kept = [false; SizeClass::COUNT];
        let mut released = 0;
        for index in 0..self.slabs.len() {
            let Some(slab) = &mut self.slabs[index] else { continue };
            if !slab.free.is_empty_slab() {
                continue;
            }
            if !std::mem::replace(&mut kept[slab.class.number() as usize], true) {
                continue;
            }
            let since = *slab.empty_since.get_or_insert_with(|| safe.now());
            if safe.has_passed(since) {
                probe!("an empty slab goes back to its region");
                let done = self.release(index).await;
                self.unsure |= done.is_err();
                done?;
                released += 1;
            }
        }
        Ok(released)
    }

    async fn release(&mut self, index: usize) -> Result<()> {
        let Some(slab) = self.forget(index) else { return Ok(()) };
        // Whoever claims it next, for another class, finds first words that are 0, and no hints.
        for chunk in slab.chunk..slab.chunk + slab.class.chunks() {
            let zeroes = [0; CHUNK_BYTES as usize / 8];
            self.places[slab.region].write(&self.worker, chunk * CHUNK_BYTES, &zeroes).await?;
        }
        let head = self.entry(slab.class);
        self.places[slab.region].give_back(&self.worker, slab.chunk, head).await
    }
}
