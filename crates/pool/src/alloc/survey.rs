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
    /// Its first word on each replica.
    pub headers: Vec<u64>,
}

impl Place {
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
            let mut tickets = Vec::with_capacity(some.len() * self.replicas.len());
            for place in some.iter() {
                for (replica, base) in &self.replicas {
                    tickets.push(round.to(replica).read(base + place.offset, 8));
                }
            }
            let done = round.ring().await?;
            let mut words = tickets.into_iter().map(|ticket| done[ticket][0]);
            for place in some {
                place.headers = words.by_ref().take(self.replicas.len()).collect();
            }
        }
        used.retain(|place| place.headers.iter().any(|word| *word > FREED));
        Ok(used)
    }
}
