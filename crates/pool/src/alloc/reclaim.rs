//! The slabs of a dead owner: found in the tables, looked through, and taken over.

use farside_fabric::{Result, probe};

use super::heap::Heap;
use super::slab::Slab;
use super::table::Entry;
use super::{Bitmap, FREED};
use crate::Addr;

impl Heap {
    /// Takes over all slabs of an owner that is dead and fenced; how many. Empty ones go back to their
    /// regions at once only through [`Heap::tidy`], like any other.
    ///
    /// Whoever dies meanwhile leaves each slab either with the dead owner or with itself.
    pub async fn reclaim(&mut self, dead: u64) -> Result<usize> {
        let mut taken = 0;
        for region in 0..self.places.len() {
            let table = self.places[region].read_table(&self.worker).await?;
            for (chunk, word) in table.iter().enumerate() {
                let Some(entry) = Entry::from_word(*word) else { continue };
                if entry.owner != dead || entry.inner {
                    continue;
                }
                taken += usize::from(self.take_over(region, chunk as u64, entry).await?);
            }
            self.free_leftovers(region, dead).await?;
        }
        Ok(taken)
    }

    /// All objects of our slabs that are in use by their first words: for audits.
    pub async fn live(&self) -> Result<Vec<Addr>> {
        let mut live = Vec::new();
        for slab in self.slabs.iter().flatten() {
            let place = &self.places[slab.region];
            let offsets: Vec<u64> =
                (0..slab.class.objects()).map(|number| slab.offset(number)).collect();
            let headers = place.read_words(&self.worker, &offsets).await?;
            let used = offsets.into_iter().zip(headers).filter(|(_, header)| *header > FREED);
            live.extend(used.filter_map(|(offset, _)| Addr::new(place.region, offset)));
        }
        Ok(live)
    }

    async fn take_over(&mut self, region: usize, chunk: u64, entry: Entry) -> Result<bool> {
        let class = entry.class;
        let old = (0..class.chunks()).map(|n| Entry { inner: n > 0, ..entry }.to_word());
        let words: Vec<_> = old.zip(self.entries(class)).collect();
        if !self.places[region].change(&self.worker, chunk, &words).await? {
            probe!("a slab of a dead owner was not whole, or is taken");
            return Ok(false);
        }
        probe!("a slab of a dead owner is taken over");
        let free = Bitmap::taken(class.objects());
        let mut slab = Slab { region, chunk, class, free, empty_since: None };
        let offsets: Vec<u64> = (0..class.objects()).map(|number| slab.offset(number)).collect();
        let headers = self.places[region].read_words(&self.worker, &offsets).await?;
        for (number, header) in headers.iter().enumerate() {
            if *header == 0 {
                slab.free.give(number);
            }
        }
        let freed = headers.contains(&FREED);
        self.adopt(slab);
        if freed {
            self.scrub().await?;
        }
        Ok(true)
    }

    /// An owner that died while it claimed a run of chunks has left parts of one: nobody uses them.
    async fn free_leftovers(&mut self, region: usize, dead: u64) -> Result<()> {
        let table = self.places[region].read_table(&self.worker).await?;
        for (chunk, word) in table.iter().enumerate() {
            if Entry::from_word(*word).is_some_and(|entry| entry.owner == dead) {
                probe!("a chunk of an unfinished claim is freed");
                let place = &self.places[region];
                place.change(&self.worker, chunk as u64, &[(*word, 0)]).await?;
            }
        }
        Ok(())
    }
}
