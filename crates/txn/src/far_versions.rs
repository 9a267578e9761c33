//! A version cache at a node of its own (`ford.txt` §4.7): at a compute node, or at the switch before them. Whoever validates asks
//! there whether an object is still as it was read, which is nearer than its copies.
//!
//! Objects share places, of which there are as many as the node has room for. A place is two words:
//!
//! | bytes | what |
//! | --- | --- |
//! | 0 | *marks*: how many are about to write something there, or may be (low half); and how many ever were (high half) |
//! | 8 | *print*: of an object and the time of its version, or 0. True, unless somebody is about to write |
//!
//! - Whoever locks an object marks its place in the same round trip, by FAA, and before it takes its commit time. With the bodies goes
//!   a new print; the mark is taken back behind that, with the locks. Whoever does not know whether its print is there leaves its mark.
//! - Whoever validates reads the marks, and then the print: nobody else has a mark, and the print is that of what it has read.
//! - Otherwise it asks the copies, and then fills the place in: it marks it, if nobody has since it looked; writes the print; looks once
//!   more at the marks, and erases the print if there are new ones. Meanwhile nobody trusts the place.
//!
//! A mark that is left (its process died) makes a place useless, not wrong, until there is another cache. The node is a member
//! of the pool: all who write mark, whatever their protocol, as long as the configuration has it; when it is lost, a configuration without
//! it counts when all know of it, and then versions are compared at the copies, until another node takes its place. A new one is empty.

use std::rc::Rc;

use farside_fabric::{Queue, Round, Ticket, Word, Words, probe};
use farside_pool::{Addr, CONTROL_BYTES, Config};
use smallvec::SmallVec;

use crate::agent::Agent;
use crate::queues::Queues;
use crate::txn::Txn;
use crate::validate::Doubt;
use crate::words::{checksum, place_of};
use crate::{RELEASE, Trap, TxnError, VALIDATE};

/// One more who is about to write.
const MARK: u64 = 1 << 32 | 1;
/// One less.
const UNMARK: u64 = u64::MAX;

const PRINT: u64 = 8;
const PLACE_BYTES: u64 = 16;

/// The version cache of a configuration.
#[derive(Clone, Copy)]
pub(crate) struct FarVersions<'q> {
    queue: &'q Queue,
    node: u16,
    places: u64,
}

/// A mark that was set, to be taken back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    node: u16,
    at: u64,
}

/// What an object and the time of its version look like.
fn print(addr: Addr, version: u64) -> u64 {
    checksum(&[&[addr.to_word(), version]])
}

/// How many have marked a place.
fn pending(marks: u64) -> u64 {
    marks & 0xffff_ffff
}

impl<'q> FarVersions<'q> {
    /// That of a configuration, if it has one.
    #[inline]
    pub(crate) fn of(config: &Config, queues: &'q Queues) -> Result<Option<Self>, TxnError> {
        let Some(node) = config.version_cache() else { return Ok(None) };
        let queue = queues.to(node.id)?;
        let bytes = node.bytes.min(queue.memory_bytes());
        let places = bytes.saturating_sub(CONTROL_BYTES) / PLACE_BYTES;
        Ok((places > 0).then_some(FarVersions { queue, node: node.id, places }))
    }

    fn place(&self, addr: Addr) -> u64 {
        CONTROL_BYTES + place_of(addr, self.places) * PLACE_BYTES
    }

    /// Says that an object may be written.
    pub(crate) fn mark(&self, addr: Addr, round: &mut Round<'q>) {
        round.to(self.queue).faa(self.place(addr), MARK);
    }

    /// The mark of an object.
    pub(crate) fn mark_of(&self, addr: Addr) -> Mark {
        Mark { node: self.node, at: self.place(addr) }
    }

    /// Says which version an object has, or will have when nobody is about to write it any more.
    pub(crate) fn tell(&self, addr: Addr, version: u64, round: &mut Round<'q>) {
        round.to(self.queue).write(self.place(addr) + PRINT, &[print(addr, version)]);
    }
}

impl Mark {
    /// Takes it back: once, for nobody would know whether a second time is one too many.
    pub(crate) fn take_back<'q>(self, queues: &'q Queues, round: &mut Round<'q>) {
        if let Ok(queue) = queues.to(self.node) {
            round.to(queue).faa(self.at, UNMARK);
        }
    }
}

/// A look at a place: its marks, and then its print.
enum Look {
    Whole(Ticket<Words>),
    Apart(Ticket<Words>, Ticket<Words>),
}

impl Txn {
    /// The version cache that all who write tell, if there is one.
    pub(crate) fn far_versions(&self) -> Result<Option<FarVersions<'_>>, TxnError> {
        FarVersions::of(self.leave.config(), &self.queues)
    }

    /// Asks the cache about what was only read; what it does not know is left. A place that nobody has marked can be filled in
    /// then.
    pub(crate) async fn ask_far_versions(
        &self,
        doubts: &mut SmallVec<[Doubt; 4]>,
    ) -> Result<(), TxnError> {
        let asks = self.protocol().versions.are_at_a_node();
        let Some(cache) = self.far_versions()?.filter(|_| asks && !doubts.is_empty()) else {
            return Ok(());
        };
        let agent = &self.agent;
        let mut round = agent.worker.round().counted(&agent.tally, VALIDATE);
        let whole = cache.queue.capabilities().line_atomic;
        let mut looks = SmallVec::<[Look; 4]>::new();
        for doubt in doubts.iter() {
            let at = cache.place(self.entries[doubt.entry].target.addr);
            let mut bell = round.to(cache.queue);
            looks.push(match whole {
                true => Look::Whole(bell.read(at, PLACE_BYTES as usize)),
                false => Look::Apart(bell.read(at, 8), bell.read(at + PRINT, 8)),
            });
        }
        self.trip();
        let done = round.ring().await?;
        let mut looks = looks.into_iter();
        doubts.retain(|doubt| {
            let (marks, found) = match looks.next().expect("one each") {
                Look::Whole(both) => (done[both][0], done[both][1]),
                Look::Apart(marks, print) => (done[marks][0], done[print][0]),
            };
            let entry = &self.entries[doubt.entry];
            if entry.locked {
                return true;
            }
            let addr = entry.target.addr;
            let marked = |it: &&crate::entry::Entry| {
                it.marked && cache.place(it.target.addr) == cache.place(addr)
            };
            let own = self.entries.iter().filter(marked).count() as u64;
            let is_marked = pending(marks) != own && !agent.has(Trap::MarksAreIgnored);
            let same = !is_marked && found == print(addr, entry.version.ts);
            if same {
                probe!("a version is found in the cache of a node");
            } else {
                probe!("a version is not found in the cache of a node");
                doubt.unmarked = (pending(marks) == 0).then_some(marks);
            }
            !same
        });
        Ok(())
    }

    /// The copies say that an object is at a version, and nobody has its lock: a place that nobody had marked is filled in.
    pub(crate) fn fill_in(&self, addr: Addr, version: u64, unmarked: u64) {
        let Ok(Some(cache)) = self.far_versions() else { return };
        let (at, print) = (cache.place(addr), print(addr, version));
        let (agent, queue) = (Rc::clone(&self.agent), cache.queue.clone());
        self.agent.beside(async move {
            // Whatever goes wrong, a mark may be left.
            let _ = fill_in(&agent, &queue, at, print, unmarked).await;
        });
    }
}

async fn fill_in(
    agent: &Agent,
    queue: &Queue,
    at: u64,
    print: u64,
    unmarked: u64,
) -> Result<(), TxnError> {
    let round = || agent.worker.round().counted(&agent.tally, RELEASE);
    let mut marking = round();
    let before: Ticket<Word> = marking.to(queue).faa(at, MARK);
    let alone = marking.ring().await?[before] == unmarked;
    if alone {
        probe!("a place of the version cache is filled in");
        let mut telling = round();
        telling.to(queue).write(at + PRINT, &[print]);
        let after = telling.to(queue).read(at, 8);
        let marks = telling.ring().await?[after][0];
        if marks != unmarked.wrapping_add(MARK) {
            probe!("somebody marks a place while it is filled in");
            let mut erasing = round();
            erasing.to(queue).write(at + PRINT, &[0]);
            erasing.ring().await?;
        }
    }
    let mut leaving = round();
    leaving.to(queue).faa(at, UNMARK);
    leaving.ring().await?;
    Ok(())
}
