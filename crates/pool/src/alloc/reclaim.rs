//! The slabs of the dead, once they are nobody's: looked through, and adopted.

use farside_fabric::{Result, probe};

use super::heap::Heap;
use super::slab::Slab;
use super::table::{Entry, NOBODY};
use super::{Bitmap, FREED, SizeClass};
use crate::Addr;

impl Heap {
    /// Adopts all slabs that nobody has (see [`super::Place::disown`]); how many. Those that are empty
    /// go back to their regions through [`Heap::tidy`], like any other.
    pub async fn adopt_abandoned(&mut self) -> Result<usize> {
        let mut adopted = 0;
        for region in 0..self.places.len() {
            let table = self.places[region].read_table(&self.worker).await?;
            for (chunk, entry) in self.abandoned(region, &table) {
                adopted += usize::from(self.take_over(region, chunk, entry).await?);
            }
        }
        Ok(adopted)
    }

    /// Looks at some of the slabs that nobody has, `most` at a time, and adopts those in which nothing is in use; how many.
    /// Of the sort in which nobody expects anything, `is_left` tells by its first word what only the dead have used.
    /// They go back to their regions through [`Heap::tidy`]; the others wait for a heap that needs one.
    pub async fn adopt_empty(
        &mut self,
        most: usize,
        is_left: impl Fn(u64) -> bool,
    ) -> Result<usize> {
        let (region, from) = self.next_abandoned;
        // The next time elsewhere, however this ends.
        self.next_abandoned = (region + 1, 0);
        if region >= self.places.len() {
            self.next_abandoned = (0, 0);
            return Ok(0);
        }
        let adopted = self.adopt_empty_of(region, from, most, is_left).await;
        self.unsure |= adopted.is_err();
        adopted
    }

    async fn adopt_empty_of(
        &mut self,
        region: usize,
        from: u64,
        most: usize,
        is_left: impl Fn(u64) -> bool,
    ) -> Result<usize> {
        let table = self.places[region].read_table(&self.worker).await?;
        let is_next = |(chunk, entry): &(u64, Entry)| entry.owner == NOBODY && *chunk >= from;
        let some: Vec<_> =
            self.abandoned(region, &table).into_iter().filter(is_next).take(most).collect();
        if let Some((chunk, _)) = some.last().filter(|_| some.len() == most) {
            self.next_abandoned = (region, chunk + 1);
        }
        let mut adopted = 0;
        for (chunk, entry) in some {
            let class = entry.class;
            let headers = self.headers(region, chunk, class).await?;
            let is_raw = class == class.raw();
            let is_empty = |header: &u64| *header <= FREED || is_raw && is_left(*header);
            if headers.iter().all(is_empty) && self.take_over(region, chunk, entry).await? {
                probe!("an empty slab of the dead is adopted");
                adopted += 1;
            }
        }
        Ok(adopted)
    }

    /// The first words of all objects of a slab.
    async fn headers(&self, region: usize, chunk: u64, class: SizeClass) -> Result<Vec<u64>> {
        let free = Bitmap::taken(class.objects());
        let slab = Slab { region, chunk, class, free, empty_since: None };
        let offsets: Vec<u64> = (0..class.objects()).map(|number| slab.offset(number)).collect();
        self.places[region].read_words(&self.worker, &offsets).await
    }

    /// Adopts what has our name without our knowing, and tells the copies.
    pub(super) async fn settle(&mut self) -> Result<()> {
        for region in 0..self.places.len() {
            let (place, owner) = (&self.places[region], self.owner);
            let table = place.read_table(&self.worker).await?;
            place.clear_leftovers(&self.worker, &table, &|theirs| theirs == owner).await?;
            for (chunk, entry) in self.abandoned(region, &table) {
                if entry.owner == self.owner {
                    probe!("a slab that was claimed with an error is known again");
                    self.take_over(region, chunk, entry).await?;
                }
            }
        }
        Ok(())
    }

    /// Adopts one slab of a class that has room, if there is one.
    pub(super) async fn adopt_one(
        &mut self,
        region: usize,
        table: &[u64],
        class: SizeClass,
    ) -> Result<bool> {
        for (chunk, entry) in self.abandoned(region, table) {
            if entry.class == class && self.take_over(region, chunk, entry).await? {
                let slab = self.slab_of(region, chunk);
                if slab.is_some_and(|slab| slab.free.count() > 0) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// The slabs that nobody has, and those that have our name without our knowing: claims and
    /// releases of ours that ended with an error.
    fn abandoned(&self, region: usize, table: &[u64]) -> Vec<(u64, Entry)> {
        let heads = table.iter().enumerate().skip(1).filter_map(|(chunk, word)| {
            let entry = Entry::from_word(*word)?;
            let open =
                entry.owner == NOBODY || entry.owner == self.owner && !self.has(region, chunk);
            (open && entry.is_whole(&table[chunk..])).then_some((chunk as u64, entry))
        });
        heads.collect()
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
        let mine = self.entry(class);
        if !self.places[region].take(&self.worker, chunk, entry, mine).await? {
            probe!("another heap adopted a slab first");
            return Ok(false);
        }
        probe!("a slab that nobody had is adopted");
        let free = Bitmap::taken(class.objects());
        let mut slab = Slab { region, chunk, class, free, empty_since: None };
        let headers = self.headers(region, chunk, class).await?;
        for (number, header) in headers.iter().enumerate() {
            if *header == 0 {
                slab.free.give(number);
            } else if *header != FREED && class == class.raw() && entry.owner != self.owner {
                // What is in a slab of our own name is ours, or of a thread before us in our place.
                let addr = Addr::new(self.places[region].region, slab.offset(number));
                self.strays.extend(addr.map(|addr| (addr, *header)));
            }
        }
        let freed: Vec<usize> =
            (0..headers.len()).filter(|number| headers[*number] == FREED).collect();
        let index = self.adopt(slab);
        self.take_back(index, &freed).await?;
        Ok(true)
    }
}
