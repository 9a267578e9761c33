//! What an owner has: for whoever looks after what it left behind.

use farside_fabric::{Result, Worker};

use super::slab::{CHUNK_BYTES, HEAD_BYTES};
use super::table::{Entry, Place, owned};
use super::{FREED, SizeClass};

/// A place of a slab that is in use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Used {
    /// Where it is in its region.
    pub offset: u64,
    /// Of which size.
    pub class: SizeClass,
    /// Its first word on each replica, and then on each copy in the making.
    pub headers: Vec<u64>,
}

/// A slab, as a table has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlabAt {
    /// Where its first object is in its region.
    pub begin: u64,
    /// Of which size they are.
    pub class: SizeClass,
}

impl SlabAt {
    /// Whether nobody expects objects in it.
    pub fn is_raw(&self) -> bool {
        self.class == self.class.raw()
    }

    /// Where its places are in its region.
    pub fn offsets(&self) -> impl Iterator<Item = u64> + use<> {
        let SlabAt { begin, class } = *self;
        (0..class.objects()).map(move |number| begin + number as u64 * class.bytes())
    }
}

impl Place {
    /// Where the table is in a region, and how many bytes of it count.
    pub fn table_bytes(&self) -> u64 {
        self.chunks() * 8
    }

    /// All slabs.
    pub async fn slabs(&self, worker: &Worker) -> Result<Vec<SlabAt>> {
        let table = self.read_table(worker).await?;
        let whole =
            owned(&table).into_iter().filter(|(_, entry, whole)| *whole && !entry.is_system());
        Ok(whole
            .map(|(chunk, entry, _)| SlabAt {
                begin: chunk * CHUNK_BYTES + HEAD_BYTES,
                class: entry.class,
            })
            .collect())
    }

    /// What some owners have in use of the sort in which nobody expects anything, with the first words on all replicas:
    /// they may differ where their owner died.
    pub async fn survey_raw(
        &self,
        worker: &Worker,
        is_owner: &dyn Fn(u64) -> bool,
    ) -> Result<Vec<Used>> {
        let table = self.read_table(worker).await?;
        let raw = |entry: &Entry| is_owner(entry.owner) && entry.class == entry.class.raw();
        let slabs = owned(&table).into_iter().filter(|(_, entry, whole)| *whole && raw(entry));
        let mut used: Vec<Used> = slabs
            .flat_map(|(chunk, entry, _)| {
                let (class, begin) = (entry.class, chunk * CHUNK_BYTES + HEAD_BYTES);
                let offsets = (0..class.objects()).map(move |n| begin + n as u64 * class.bytes());
                offsets.map(move |offset| Used { offset, class, headers: Vec::new() })
            })
            .collect();
        for some in used.chunks_mut(super::table::READS_PER_ROUND) {
            let mut round = worker.round();
            let all = || self.replicas.iter().chain(&self.joining);
            let mut tickets = Vec::with_capacity(some.len() * all().count());
            for place in some.iter() {
                for (replica, base) in all() {
                    tickets.push(round.to(replica).read(base + place.offset, 8));
                }
            }
            let done = round.ring().await?;
            let mut words = tickets.into_iter().map(|ticket| done[ticket][0]);
            for place in some {
                place.headers = words.by_ref().take(all().count()).collect();
            }
        }
        used.retain(|place| place.headers.iter().any(|word| *word > FREED));
        Ok(used)
    }
}
