//! Copies that count, compared with their primaries.

use std::rc::Rc;

use farside_pool::alloc::SlabAt;
use farside_pool::{Addr, RegionId};

use super::unguarded::{first_word, is_body};
use super::{Acting, Copy};
use crate::TxnError;
use crate::agent::Agent;
use crate::object::Target;

/// What a comparison has found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Compared {
    /// Slabs that were compared, on all copies.
    pub slabs: usize,
    /// What differed, or was locked: that may be so while somebody writes.
    pub differences: Vec<String>,
}

impl Agent {
    /// Compares all copies of all regions with their primaries.
    pub async fn compare_copies(self: &Rc<Self>) -> Result<Compared, TxnError> {
        let config = self.seat.view().config();
        let mut compared = Compared::default();
        for region in &config.regions {
            for to in region.replicas.iter().skip(1) {
                let copy = Copy { agent: self, region: RegionId(region.id), to: *to };
                copy.compare(&mut compared).await?;
            }
        }
        Ok(compared)
    }
}

impl Copy<'_> {
    async fn compare(&self, compared: &mut Compared) -> Result<(), TxnError> {
        let acting = self.act().await?;
        let bytes = self.place(&acting)?.table_bytes();
        let offsets: Vec<u64> = (0..bytes / 8).map(|word| word * 8).collect();
        let differs = |here, _| Some(here);
        self.compare_words(&acting, &offsets, differs, compared).await?;
        let (slabs, _) = self.slabs(0).await?;
        for slab in &slabs {
            compared.slabs += 1;
            match slab.is_raw() {
                true => self.compare_raw(&acting, slab, compared).await?,
                false => self.compare_objects(slab, compared).await?,
            }
        }
        Ok(())
    }

    fn tell(&self, compared: &mut Compared, what: &str, offset: u64) {
        let (region, node) = (self.region.0, self.to.node);
        let difference = format!("{what} at {offset:#x} of region {region} on node {node}");
        compared.differences.push(difference);
    }

    async fn compare_words(
        &self,
        acting: &Acting,
        offsets: &[u64],
        becomes: impl Fn(u64, u64) -> Option<u64>,
        compared: &mut Compared,
    ) -> Result<(), TxnError> {
        for pair in self.read_pairs(acting, offsets).await? {
            if becomes(pair.here, pair.there).is_some_and(|word| word != pair.there) {
                let what = format!("{:#x} and not {:#x}", pair.there, pair.here);
                self.tell(compared, &what, pair.offset);
            }
        }
        Ok(())
    }

    async fn compare_objects(
        &self,
        slab: &SlabAt,
        compared: &mut Compared,
    ) -> Result<(), TxnError> {
        if slab.class.bytes() < Target::bytes(0) {
            return Ok(());
        }
        let target =
            |offset| Addr::new(self.region, offset).map(|addr| Target::of_class(addr, slab.class));
        let all: Vec<Target> = slab.offsets().filter_map(target).collect();
        for different in self.different(&all).await? {
            self.tell(compared, "an object", different.addr.offset());
        }
        Ok(())
    }

    async fn compare_raw(
        &self,
        acting: &Acting,
        slab: &SlabAt,
        compared: &mut Compared,
    ) -> Result<(), TxnError> {
        let offsets: Vec<u64> = slab.offsets().collect();
        self.compare_words(acting, &offsets, first_word, compared).await?;
        for pair in self.read_pairs(acting, &offsets).await? {
            if is_body(pair.here)
                && !self.is_same_body(acting, pair.offset, slab.class.bytes()).await?
            {
                self.tell(compared, "a large body", pair.offset);
            }
        }
        Ok(())
    }
}
