//! Scrub: all objects are read on all replicas, and the large bodies that they name, whether anybody needs them or not. What is damaged,
//! or is not the same everywhere, is found while there are other copies of it.
//!
//! While somebody writes an object, it may be torn, or newer on some replicas than on others; but then it is locked there, or it is
//! not so any more a moment later. So what looks wrong is looked at again, and is a flaw if it stays as it is, word by word, and
//! nobody who lives has a lock on it.

mod noted;
mod reading;

use std::fmt;
use std::rc::{Rc, Weak};
use std::time::Duration;

use farside_fabric::runtime::Task;
use farside_fabric::{Time, probe};
use farside_pool::alloc::SlabAt;
use farside_pool::{Addr, Region, RegionId};

use crate::agent::Agent;
use crate::blob::Blob;
use crate::object::{Target, Version};
use crate::place::{Decided, claim};
use crate::queues::replicas;
use crate::system::{self, SCRUBBER};
use crate::{SCRUB, TxnError};
use reading::Reading;

pub use noted::Scrubbed;

/// How often something is as it was before it is a flaw, and how often it is looked at, at most, while it changes.
const ENOUGH_LOOKS: u32 = 3;
const MOST_LOOKS: u32 = 20;

/// How much of a node is read at once.
const BYTES_AT_ONCE: u64 = 64 << 10;

/// So many times as long as a part took whoever scrubs beside other things rests.
const REST: u32 = 20;

/// How often something is tried while nodes come and go.
const MOST_TRIES: u32 = 40;

/// Flaws that are told one by one.
const MOST_TOLD: usize = 1000;

/// The large body that an object names, if it names one.
pub type Names = fn(&Version) -> Option<Blob>;

/// How far a scrub is, or what it has found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Scrub {
    /// Objects that were looked at.
    pub objects: u64,
    /// Bytes that were read, of all replicas.
    pub bytes: u64,
    /// How much of the regions is behind it, and how much there is.
    pub place: u64,
    /// See `place`.
    pub whole: u64,
    /// What is wrong: the first ones.
    pub flaws: Vec<Flaw>,
    /// How much is wrong.
    pub flawed: u64,
}

/// Something that is wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flaw {
    /// Of which object.
    pub object: Addr,
    /// On which node.
    pub node: u16,
    /// What.
    pub what: Wrong,
}

/// What may be wrong with an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Wrong {
    /// Its checksum does not fit, or its first word.
    Damaged,
    /// It is whole, but not the newest that a replica has.
    Different,
    /// The large body that it names does not fit.
    BodyDamaged,
    /// There is no place, or no copy of it, where its large body should be.
    BodyLost,
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.what {
            Wrong::Damaged => "is damaged: its checksum or its first word does not fit",
            Wrong::Different => "is older than on another node",
            Wrong::BodyLost => "names a large value that is nowhere",
            Wrong::BodyDamaged => "names a large value that is damaged: its checksum does not fit",
        };
        let (region, offset) = (self.object.region().0, self.object.offset());
        write!(f, "the object at {offset:#x} of region {region} on node {} {what}", self.node)
    }
}

impl Agent {
    /// Looks at everything. `go_on` hears how far it is, and may end it.
    pub async fn scrub(
        self: &Rc<Self>,
        names: Names,
        go_on: impl FnMut(&Scrub) -> bool,
    ) -> Result<Scrub, TxnError> {
        Scrubber { agent: self, names, rest: 0, go_on, known: Scrub::default() }.run().await
    }

    /// What the last scrub of anybody found.
    pub async fn last_scrub(self: &Rc<Self>) -> Result<Scrubbed, TxnError> {
        noted::last(self).await
    }

    /// Looks at everything now and then, beside other things, if nobody else does, until the task is dropped: for one thread of
    /// a process, which is always driven.
    pub fn scrub_now_and_then(self: &Rc<Self>, names: Names) -> Task<()> {
        self.worker.spawn(tend(Rc::downgrade(self), names))
    }
}

async fn tend(agent: Weak<Agent>, names: Names) {
    while let Some(strong) = agent.upgrade() {
        let (worker, every) = (strong.worker.clone(), strong.session.limits.scrub);
        drop(strong);
        let Some(every) = every else { return };
        worker.sleep(every).await;
        let Some(agent) = agent.upgrade() else { return };
        if scrub_if_due(&agent, names, every).await.is_err() {
            probe!("a scrub ends with an error, and is begun again another time");
        }
    }
}

async fn scrub_if_due(agent: &Rc<Agent>, names: Names, every: Duration) -> Result<(), TxnError> {
    let last = noted::last(agent).await?;
    let now = agent.lower();
    // What is noted for later than now is no such note.
    let is_due = last.time > now || now - last.time >= every.as_nanos() as u64;
    if !is_due || !claim(agent, SCRUBBER).await? {
        return Ok(());
    }
    let go_on = |_: &Scrub| true;
    let known = Scrub::default();
    let scrubbed = Scrubber { agent, names, rest: REST, go_on, known }.run().await;
    let (permit, queues) = agent.act().await?;
    let word = Decided::new(&agent.worker, &queues, permit.config(), SCRUBBER)?;
    word.give_up(agent.session.identity.client).await?;
    scrubbed.map(|_| ())
}

/// What comes next.
enum Next {
    Go,
    /// Slabs may not be where they were.
    LookAgain,
    End,
}

/// Something that looks wrong, and how often it did.
struct Suspect {
    reading: Reading,
    looks: u32,
}

struct Scrubber<'a, F> {
    agent: &'a Rc<Agent>,
    names: Names,
    rest: u32,
    go_on: F,
    known: Scrub,
}

impl<F: FnMut(&Scrub) -> bool> Scrubber<'_, F> {
    async fn run(mut self) -> Result<Scrub, TxnError> {
        let config = self.agent.config();
        self.known.whole = config.regions.iter().map(|region| region.bytes).sum();
        let mut behind = 0;
        for region in &config.regions {
            if !self.region(RegionId(region.id), behind).await? {
                return Ok(self.known);
            }
            behind += region.bytes;
            self.known.place = behind;
        }
        noted::note(self.agent, &self.known).await?;
        Ok(self.known)
    }

    /// All of a region, if there is anything left of it; whether to go on.
    async fn region(&mut self, region: RegionId, behind: u64) -> Result<bool, TxnError> {
        if region == system::REGION {
            self.objects(&[system::catalog_target()], u64::MAX).await?;
        }
        let mut from = 0;
        loop {
            let learned = self.agent.lower();
            let mut slabs = patiently(self.agent, async || self.slabs(region).await).await?;
            slabs.retain(|slab| slab.begin >= from && !slab.is_raw());
            if slabs.is_empty() {
                return Ok(true);
            }
            for slab in slabs {
                match self.slab(region, &slab, learned).await? {
                    Next::Go => {}
                    Next::LookAgain => {
                        probe!("whoever scrubs looks again where slabs are");
                        break;
                    }
                    Next::End => return Ok(false),
                }
                from = slab.begin + 1;
                self.known.place = behind + from;
            }
        }
    }

    async fn slabs(&self, region: RegionId) -> Result<Vec<SlabAt>, TxnError> {
        let (permit, queues) = self.agent.act().await?;
        let region = permit.config().region(region).filter(|it| !it.replicas.is_empty());
        let Some(region) = region else { return Ok(Vec::new()) };
        let place = queues.place(region).ok_or(TxnError::Moved)?;
        Ok(place.slabs(&self.agent.worker).await?)
    }

    async fn slab(
        &mut self,
        region: RegionId,
        slab: &SlabAt,
        learned: u64,
    ) -> Result<Next, TxnError> {
        if slab.class.bytes() < Target::bytes(0) {
            return Ok(Next::Go);
        }
        let addrs = slab.offsets().filter_map(|offset| Addr::new(region, offset));
        let targets: Vec<Target> = addrs.map(|addr| Target::of_class(addr, slab.class)).collect();
        for some in targets.chunks((BYTES_AT_ONCE / slab.class.bytes()).max(1) as usize) {
            if !self.objects(some, learned).await? {
                return Ok(Next::LookAgain);
            }
            if !(self.go_on)(&self.known) {
                return Ok(Next::End);
            }
        }
        Ok(Next::Go)
    }

    /// Some objects, until it is known what is wrong with them. `false` if there may be others by now than when that was
    /// learned.
    async fn objects(&mut self, targets: &[Target], learned: u64) -> Result<bool, TxnError> {
        let readings = patiently(self.agent, async || self.look(targets, learned).await).await?;
        let Some(readings) = readings else { return Ok(false) };
        self.known.objects += readings.iter().filter(|reading| reading.is_in_use()).count() as u64;
        self.known.bytes += readings.iter().map(Reading::bytes).sum::<u64>();
        let wrong = readings.into_iter().filter(|reading| !self.flaws(reading).is_empty());
        let mut suspects: Vec<_> = wrong.map(|reading| Suspect { reading, looks: 1 }).collect();
        for _ in 0..MOST_LOOKS {
            if suspects.is_empty() {
                break;
            }
            self.agent.worker.sleep(self.agent.lease() / 4).await;
            let targets: Vec<_> = suspects.iter().map(|suspect| suspect.reading.target).collect();
            let look = async || self.look(&targets, learned).await;
            let Some(again) = patiently(self.agent, look).await? else { return Ok(false) };
            let before = std::mem::take(&mut suspects);
            for (suspect, reading) in before.into_iter().zip(again) {
                let looks = if suspect.reading == reading { suspect.looks + 1 } else { 1 };
                match self.flaws(&reading) {
                    flaws if flaws.is_empty() => probe!("what looked wrong was under way"),
                    flaws if looks >= ENOUGH_LOOKS => self.tell(&flaws),
                    _ => suspects.push(Suspect { reading, looks }),
                }
            }
        }
        Ok(true)
    }

    fn flaws(&self, reading: &Reading) -> Vec<Flaw> {
        reading.flaws(|word| word != 0 && !self.agent.session.watch.is_orphan(word))
    }

    fn tell(&mut self, flaws: &[Flaw]) {
        probe!("a scrub finds a flaw");
        self.known.flawed += flaws.len() as u64;
        let room = MOST_TOLD.saturating_sub(self.known.flaws.len());
        self.known.flaws.extend(flaws.iter().take(room));
    }

    /// Reads objects on all replicas, and then the large bodies that they name. `None` if there may be others by now.
    async fn look(
        &self,
        targets: &[Target],
        learned: u64,
    ) -> Result<Option<Vec<Reading>>, TxnError> {
        let start = self.agent.worker.now();
        // As long as there is one, slabs stay what they are.
        let txn = self.agent.begin(None).await?;
        if !txn.may_use(learned) {
            return Ok(None);
        }
        let mut readings = self.read_objects(targets).await?;
        drop(txn);
        self.rest(start).await;
        for reading in &mut readings {
            if let Some(blob) = reading.blob(self.names) {
                let start = self.agent.worker.now();
                reading.bodies = self.check_body(reading.target, blob).await?;
                self.rest(start).await;
            }
        }
        Ok(Some(readings))
    }

    /// Others go on, and have much more time than this.
    async fn rest(&self, since: Time) {
        self.agent.worker.yield_now().await;
        self.agent.worker.sleep((self.agent.worker.now() - since) * self.rest).await;
    }

    async fn read_objects(&self, targets: &[Target]) -> Result<Vec<Reading>, TxnError> {
        let (permit, queues) = self.agent.act().await?;
        let mut round = self.agent.worker.round().counted(&self.agent.tally, SCRUB);
        let mut tickets = Vec::new();
        for (number, target) in targets.iter().enumerate() {
            let bytes = 16 + target.bytes_from_ts();
            for replica in replicas(permit.config(), target.addr)? {
                let at = replica.base + target.addr.offset();
                let words = round.to(queues.to(replica.node)?).read(at, bytes);
                tickets.push((number, replica.node, words));
            }
        }
        let done = round.ring().await?;
        let mut readings: Vec<Reading> = targets.iter().copied().map(Reading::new).collect();
        for (number, node, words) in tickets {
            readings[number].copies.push((node, done[words].to_vec()));
        }
        Ok(readings)
    }

    /// Where a large body is not what it should be: all of it, if there is no such place.
    async fn check_body(&self, of: Target, blob: Blob) -> Result<Vec<(u16, Wrong)>, TxnError> {
        let (permit, queues) = self.agent.act().await?;
        let primary = replicas(permit.config(), of.addr)?[0].node;
        let region = permit.config().region(blob.addr.region());
        let fits = |region: &&Region| blob.addr.offset() + 8 + blob.bytes <= region.bytes;
        let replicas = region.filter(fits).map_or(&[][..], |region| &region.replicas);
        if replicas.is_empty() {
            return Ok(vec![(primary, Wrong::BodyLost)]);
        }
        let mut round = self.agent.worker.round().counted(&self.agent.tally, SCRUB);
        let mut tickets = Vec::new();
        for replica in replicas {
            let bell = round.to(queues.to(replica.node)?);
            tickets.push((replica.node, blob.read(bell, replica.base)));
        }
        let done = round.ring().await?;
        let bad = tickets.into_iter().filter(|(_, words)| !blob.is_whole(&done[*words]));
        Ok(bad.map(|(node, _)| (node, Wrong::BodyDamaged)).collect())
    }
}

/// Again and again, for a while, as nodes come and go.
async fn patiently<T>(
    agent: &Agent,
    act: impl AsyncFn() -> Result<T, TxnError>,
) -> Result<T, TxnError> {
    for _ in 0..MOST_TRIES {
        match act().await {
            Err(error) if error.is_passing() => agent.worker.sleep(agent.lease() / 4).await,
            done => return done,
        }
    }
    act().await
}
