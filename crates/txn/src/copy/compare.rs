//! Copies that count, compared with their primaries.

use std::rc::Rc;

use farside_pool::alloc::SlabAt;
use farside_pool::{Addr, RegionId};

use super::unguarded::{Pair, first_word, is_body};
use super::{Acting, Copy};
use crate::TxnError;
use crate::agent::Agent;
use crate::object::{PREV, Raw};
use crate::record::OBJECT;
use crate::ring::RECORD_HEAD;
use crate::system;

impl Agent {
    /// Compares all copies of all regions with their primaries; what differs, or is locked, as may be while somebody writes.
    pub async fn compare_copies(self: &Rc<Self>) -> Result<Vec<String>, TxnError> {
        let config = self.seat.view().config();
        let mut differences = Vec::new();
        for region in &config.regions {
            for to in region.replicas.iter().skip(1) {
                let copy = Copy { agent: self, region: RegionId(region.id), to: *to };
                copy.compare(&mut differences).await?;
            }
        }
        Ok(differences)
    }
}

impl Copy<'_> {
    async fn compare(&self, differences: &mut Vec<String>) -> Result<(), TxnError> {
        let acting = self.act().await?;
        let bytes = self.place(&acting)?.table_bytes();
        let offsets: Vec<u64> = (0..bytes / 8).map(|word| word * 8).collect();
        for pair in self.read_pairs(&acting, &offsets).await? {
            if pair.here != pair.there {
                self.tell_pair(differences, &pair);
            }
        }
        if self.region == system::REGION {
            for different in self.different(&[system::catalog_target()]).await? {
                self.tell(differences, "the catalog", different.addr.offset());
            }
        }
        let (slabs, _) = self.slabs(0).await?;
        for slab in &slabs {
            match slab.is_raw() {
                true => self.compare_raw(&acting, slab, differences).await?,
                false => self.compare_objects(slab, differences).await?,
            }
        }
        Ok(())
    }

    fn tell(&self, differences: &mut Vec<String>, what: &str, offset: u64) {
        let (region, node) = (self.region.0, self.to.node);
        let difference = format!("{what} at {offset:#x} of region {region} on node {node}");
        differences.push(difference);
    }

    fn tell_pair(&self, differences: &mut Vec<String>, pair: &Pair) {
        let what = format!("{:#x} and not {:#x}", pair.there, pair.here);
        self.tell(differences, &what, pair.offset);
    }

    async fn compare_objects(
        &self,
        slab: &SlabAt,
        differences: &mut Vec<String>,
    ) -> Result<(), TxnError> {
        for different in self.different(&self.targets(slab)).await? {
            self.tell(differences, "an object", different.addr.offset());
        }
        Ok(())
    }

    async fn compare_raw(
        &self,
        acting: &Acting,
        slab: &SlabAt,
        differences: &mut Vec<String>,
    ) -> Result<(), TxnError> {
        let offsets: Vec<u64> = slab.offsets().collect();
        for pair in self.read_pairs(acting, &offsets).await? {
            let differs = first_word(pair.here, pair.there).is_some_and(|word| word != pair.there);
            if differs && !self.is_left_behind(acting, &pair).await? {
                self.tell_pair(differences, &pair);
            }
            let bytes = slab.class.bytes();
            if is_body(pair.here)
                && self.different_body(acting, pair.offset, bytes).await?.is_some()
            {
                self.tell(differences, "a large body", pair.offset);
            }
        }
        Ok(())
    }

    /// Whether somebody died who was about to use a place, and not all copies know of it: a ring in which there is no record, or a record of a transaction that was
    /// aborted. It is freed some time.
    async fn is_left_behind(&self, acting: &Acting, pair: &Pair) -> Result<bool, TxnError> {
        if pair.there != 0 {
            return Ok(false);
        }
        let record = pair.offset + RECORD_HEAD;
        match Raw::from_word(pair.here) {
            Raw::Ring(_) => {
                let first = self.read_pairs(acting, &[record]).await?;
                Ok(first.iter().all(|pair| pair.here == 0 && pair.there == 0))
            }
            Raw::Spilled(_) => {
                let of = self.read_pairs(acting, &[record + OBJECT]).await?;
                let object = Addr::from_word(of[0].here);
                if object.region() != self.region || object.offset() == 0 {
                    return Ok(true);
                }
                let prev = self.read_pairs(acting, &[object.offset() + PREV]).await?;
                Ok(prev[0].here != record)
            }
            _ => Ok(false),
        }
    }
}
