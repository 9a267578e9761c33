//! The queues of a thread to the nodes of a configuration.

use farside_fabric::{Queue, Round, Worker};
use farside_pool::alloc::Place;
use farside_pool::{Addr, Config, Region, Replica};
use smallvec::SmallVec;

use crate::TxnError;

/// A queue to every node.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    pub(crate) epoch: u64,
    pub(crate) to: Vec<(u16, Queue)>,
    /// Some nodes could not be reached.
    pub(crate) incomplete: bool,
}

impl Queues {
    #[inline]
    pub(crate) fn to(&self, node: u16) -> Result<&Queue, TxnError> {
        match self.to.iter().find(|(id, _)| *id == node) {
            Some((_, queue)) => Ok(queue),
            None => Err(TxnError::Unreachable(node)),
        }
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.incomplete || self.to.iter().any(|(_, queue)| queue.is_broken())
    }

    /// Whether some node keeps what is flushed.
    #[inline]
    pub(crate) fn keep_anything(&self) -> bool {
        self.to.iter().any(|(_, queue)| queue.keeps_what_is_flushed())
    }

    /// Whether some node may keep what came later without what came before.
    #[inline]
    pub(crate) fn keep_in_any_order(&self) -> bool {
        self.to.iter().any(|(_, queue)| queue.keeps_in_any_order())
    }

    /// What was posted to these nodes is durable when the round is over, as far as they keep anything.
    pub(crate) fn flush<'q>(&'q self, round: &mut Round<'q>, nodes: impl Iterator<Item = u16>) {
        let mut flushed = SmallVec::<[u16; 8]>::new();
        for node in nodes {
            let queue = self.to.iter().find(|(id, _)| *id == node && !flushed.contains(id));
            if let Some((_, queue)) = queue.filter(|(_, queue)| queue.keeps_what_is_flushed()) {
                round.to(queue).flush();
                flushed.push(node);
            }
        }
    }

    /// All that has happened at any node is durable when this returns, as far as they keep anything.
    pub(crate) async fn flush_all(&self, worker: &Worker) -> Result<(), TxnError> {
        if self.keep_anything() {
            let mut round = worker.round();
            self.flush(&mut round, self.to.iter().map(|(node, _)| *node));
            round.ring().await?;
        }
        Ok(())
    }

    /// Writes words of an object, from so many bytes on, on all replicas.
    pub(crate) async fn write_all(
        &self,
        worker: &Worker,
        config: &Config,
        addr: Addr,
        from: u64,
        words: &[u64],
    ) -> Result<(), TxnError> {
        for copies in waves(config, addr)? {
            let mut round = worker.round();
            for replica in copies {
                let at = replica.base + addr.offset() + from;
                round.to(self.to(replica.node)?).write(at, words);
            }
            round.ring().await?;
        }
        Ok(())
    }

    /// Replaces a word of an object, so many bytes from its beginning, on all replicas that have the old one.
    pub(crate) async fn swap_all(
        &self,
        worker: &Worker,
        config: &Config,
        addr: Addr,
        at: u64,
        (old, new): (u64, u64),
    ) -> Result<(), TxnError> {
        for copies in waves(config, addr)? {
            let mut round = worker.round();
            for replica in copies {
                let at = replica.base + addr.offset() + at;
                round.to(self.to(replica.node)?).cas(at, old, new);
            }
            round.ring().await?;
        }
        Ok(())
    }

    /// A region as a heap reaches it; `None` if a node is out of reach, or there is no copy.
    pub(crate) fn place(&self, region: &Region) -> Option<Place> {
        let reach = |replica: &Replica| Some((self.to(replica.node).ok()?.clone(), replica.base));
        let all = |copies: &[Replica]| copies.iter().map(reach).collect::<Option<Vec<_>>>();
        let (replicas, joining) = (all(&region.replicas)?, all(&region.joining)?);
        let (id, bytes) = (farside_pool::RegionId(region.id), region.bytes);
        let place = Place { region: id, bytes, replicas, joining };
        (!place.replicas.is_empty()).then_some(place)
    }
}

/// The copies of an object; the primary is the first.
#[inline]
pub(crate) fn replicas(config: &Config, addr: Addr) -> Result<&[Replica], TxnError> {
    let region = config.region(addr.region());
    let replicas = region.map_or(&[][..], |region| &region.replicas);
    if replicas.is_empty() { Err(nowhere(addr)) } else { Ok(replicas) }
}

/// The copies of an object as they are written where no lock keeps others away: first those that are whole, and then those
/// in the making. Whoever makes one reads the primary again when it has written, and so sees what came meanwhile.
pub(crate) fn waves(
    config: &Config,
    addr: Addr,
) -> Result<impl Iterator<Item = &[Replica]>, TxnError> {
    let whole = replicas(config, addr)?;
    let joining = config.region(addr.region()).map_or(&[][..], |region| &region.joining);
    Ok([whole, joining].into_iter().filter(|copies| !copies.is_empty()))
}

/// The copies of an object that are written: also those in the making, behind the others.
#[inline]
pub(crate) fn written(
    config: &Config,
    addr: Addr,
) -> Result<impl Iterator<Item = Replica>, TxnError> {
    let region = config.region(addr.region()).filter(|region| !region.replicas.is_empty());
    let region = region.ok_or_else(|| nowhere(addr))?;
    Ok(region.replicas.iter().chain(&region.joining).copied())
}

#[cold]
fn nowhere(addr: Addr) -> TxnError {
    TxnError::Refused(format!("{addr} is in no region that has a copy"))
}
