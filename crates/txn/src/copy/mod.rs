//! Copies of regions, made while transactions go on.
//!
//! From the configuration on that names a copy, transactions lock and write it like the others; nobody reads it before
//! it counts. Whoever was faster than that configuration still holds the lock at the primary when the copying begins, or
//! has written what is read there. One session copies at a time:
//!
//! - *Objects*, with transactions that lock them everywhere and write them there alone ([`objects`]).
//! - *What no lock guards*, the tables of slabs, first words and large bodies: written there, and then read again at
//!   the primary, until nothing has changed. Whoever writes such a thing writes the primary first; and large bodies are
//!   not freed meanwhile ([`unguarded`]).
//! - *The board*: its lines are written by those whose they are ([`board`]).
//! - Not *records*: whoever writes the copy writes its own there, and readers find older versions at other replicas.
//!
//! Then everything is compared, until each part was the same once; and then the manager is asked to let it count. A copier that dies is
//! repaired like any other session, and another one goes on where it was.

mod board;
mod compare;
mod objects;
mod unguarded;

use std::collections::BTreeSet;
use std::rc::{Rc, Weak};

use farside_fabric::{Queue, probe};
use farside_pool::alloc::{Place, SlabAt};
use farside_pool::{Config, Permit, Petition, RegionId, Replica};

use crate::agent::Agent;
use crate::place::{Decided, claim};
use crate::queues::Queues;
use crate::system::{self, COPIED, COPIER};
use crate::{Trap, TxnError};

/// How often everything is compared, at most, before it is begun anew.
const MOST_PASSES: u32 = 20;

/// Looks for copies that are to be made, as long as the thread's agent exists.
pub(crate) async fn tend(agent: Weak<Agent>) {
    while let Some(agent) = agent.upgrade() {
        if next(&agent.config()).is_some() && copy_all(&agent).await.is_err() {
            probe!("a copy ends with an error, and is begun again");
        }
        let (worker, pause) = (agent.worker.clone(), agent.lease() / 8);
        drop(agent);
        worker.sleep(pause).await;
    }
}

/// The next copy that is to be made.
fn next(config: &Config) -> Option<(RegionId, Replica)> {
    let mut regions = config.regions.iter().filter(|region| !region.replicas.is_empty());
    regions.find_map(|region| Some((RegionId(region.id), *region.joining.first()?)))
}

async fn copy_all(agent: &Rc<Agent>) -> Result<(), TxnError> {
    if !claim(agent, COPIER).await? {
        return Ok(());
    }
    while let Some((region, to)) = next(&agent.config()) {
        Copy { agent, region, to }.run().await?;
        probe!("a copy of a region is whole, and may count");
        while agent.config().region(region).is_some_and(|it| it.joining.contains(&to)) {
            agent.check_fenced()?;
            agent.seat.view().wish(Petition::Whole { region: region.0, replica: to });
            agent.worker.sleep(agent.lease() / 4).await;
        }
    }
    let (permit, queues) = agent.act().await?;
    let word = Decided::new(&agent.worker, &queues, permit.config(), COPIER)?;
    word.give_up(agent.session.identity.client).await
}

/// A copy in the making, or one that is compared.
struct Copy<'a> {
    agent: &'a Rc<Agent>,
    region: RegionId,
    to: Replica,
}

/// Leave to write what no lock guards: the configuration that names the copy lasts meanwhile.
struct Acting {
    permit: Permit,
    queues: Rc<Queues>,
    primary: Replica,
}

impl Acting {
    fn primary(&self) -> Result<(&Queue, u64), TxnError> {
        Ok((self.queues.to(self.primary.node)?, self.primary.base))
    }
}

impl Copy<'_> {
    /// Copies, and compares.
    async fn run(&self) -> Result<(), TxnError> {
        if self.agent.has(Trap::CopyOfNothing) {
            return Ok(());
        }
        self.copy_table().await?;
        let begun = self.copied_until().await?;
        self.copy_slabs(begun).await?;
        if self.agent.has(Trap::CopyWithoutLocks) && self.region != system::REGION {
            return Ok(());
        }
        self.compare_all().await
    }

    /// Compares until every part was found to be the same, once since it was copied. From then on it is: whoever changes it writes
    /// the copy, too.
    async fn compare_all(&self) -> Result<(), TxnError> {
        let mut same = BTreeSet::new();
        for _ in 0..MOST_PASSES {
            let mut differed = self.copy_table().await?;
            if self.region == system::REGION {
                differed += self.copy_board().await?;
            }
            let (slabs, learned) = self.slabs(0).await?;
            for slab in slabs {
                let name = (slab.begin, slab.class.bytes(), slab.is_raw());
                if same.contains(&name) {
                    continue;
                }
                match self.copy_slab(&slab, learned).await? {
                    Some(0) => _ = same.insert(name),
                    // One that may be another one by now is looked for again.
                    some => differed += some.unwrap_or(1),
                }
            }
            if differed == 0 {
                return Ok(());
            }
            probe!("what was copied is compared again");
        }
        Err(TxnError::TimedOut("a copy"))
    }

    /// Leave to write there, as long as this is to be done at all.
    async fn act(&self) -> Result<Acting, TxnError> {
        let (permit, queues) = self.agent.act().await?;
        let region = permit.config().region(self.region);
        let region =
            region.filter(|it| it.joining.contains(&self.to) || it.replicas.contains(&self.to));
        let primary = region.and_then(|region| region.replicas.first()).copied();
        let primary = primary.ok_or(TxnError::Moved)?;
        Ok(Acting { permit, queues, primary })
    }

    fn place(&self, acting: &Acting) -> Result<Place, TxnError> {
        let region = acting.permit.config().region(self.region).ok_or(TxnError::Moved)?;
        acting.queues.place(region).ok_or(TxnError::Unreachable(self.to.node))
    }

    /// All slabs from an offset on, and since when that is known.
    async fn slabs(&self, from: u64) -> Result<(Vec<SlabAt>, u64), TxnError> {
        let acting = self.act().await?;
        let learned = self.agent.lower();
        let mut slabs = self.place(&acting)?.slabs(&self.agent.worker).await?;
        slabs.retain(|slab| slab.begin >= from);
        Ok((slabs, learned))
    }

    /// All slabs from an offset on.
    async fn copy_slabs(&self, mut from: u64) -> Result<(), TxnError> {
        loop {
            let (slabs, learned) = self.slabs(from).await?;
            if slabs.is_empty() {
                return Ok(());
            }
            for slab in &slabs {
                if self.copy_slab(slab, learned).await?.is_none() {
                    probe!("whoever copies looks again where slabs are");
                    break;
                }
                from = slab.begin + 1;
                self.note_progress(from).await?;
            }
        }
    }

    /// A slab; how much differed, or `None` if it may be another one than it was when that was learned. Not faster than others
    /// can bear.
    async fn copy_slab(&self, slab: &SlabAt, learned: u64) -> Result<Option<usize>, TxnError> {
        let start = self.agent.worker.now();
        let copied = match slab.is_raw() {
            true => self.copy_raw(slab, learned).await?,
            false => self.copy_objects(slab, learned).await?,
        };
        self.agent.worker.sleep(self.agent.worker.now() - start).await;
        Ok(copied)
    }

    /// Which copy this is, for whoever goes on with it.
    fn name(&self) -> u64 {
        u64::from(self.region.0) << 48
            | u64::from(self.to.node) << 32
            | (self.to.base >> 16) & 0xffff_ffff
    }

    /// How far somebody came with it.
    async fn copied_until(&self) -> Result<u64, TxnError> {
        let (permit, queues) = self.agent.act().await?;
        let primary = crate::queues::replicas(permit.config(), system::catalog_root())?[0];
        let mut round = self.agent.worker.round();
        let words = round.to(queues.to(primary.node)?).read(primary.base + COPIED, 16);
        let done = round.ring().await?;
        Ok(if done[words][0] == self.name() { done[words][1] } else { 0 })
    }

    async fn note_progress(&self, until: u64) -> Result<(), TxnError> {
        let (permit, queues) = self.agent.act().await?;
        let chunk = farside_pool::Addr::new(system::REGION, COPIED).expect("a small offset");
        let words = [self.name(), until];
        queues.write_all(&self.agent.worker, permit.config(), chunk, 0, &words).await
    }
}
