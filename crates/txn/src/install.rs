//! Install: records and bodies to all replicas, in the order that the protocol wants, and again after errors.

use std::time::Duration;

use farside_fabric::{Doorbell, probe};
use farside_pool::{Addr, Config, Replica};
use smallvec::SmallVec;

use crate::far_versions::FarVersions;
use crate::log::Logged;
use crate::object::{HEADER, IN_USE, LOCK, Raw, TS, Target};
use crate::protocol::{Copies, Flush, Undo};
use crate::queues::{Queues, replicas, written};
use crate::record::{self, Record};
use crate::ring::{RECORD_HEAD, Released};
use crate::txn::Txn;
use crate::words::Lock;
use crate::{INSTALL, Trap, TxnError};

/// What goes to every replica for one object: a record, and then the object from `ts` on. Made once: after an
/// error the same bytes are written again.
#[derive(Clone, Copy)]
struct Write {
    entry: usize,
    /// Where in the region the record goes.
    record_at: u64,
    /// That is outside of the ring.
    spilled: bool,
    /// Where its words are among those of all: from here the record, from there the object.
    record: usize,
    object: usize,
    end: usize,
}

/// All that a transaction writes.
#[derive(Default)]
pub(crate) struct Writes {
    writes: SmallVec<[Write; 4]>,
    words: Vec<u64>,
    /// The records were posted before.
    logged: bool,
    /// Records that were posted before, and are not to be found any more.
    stale: SmallVec<[(Addr, u64); 2]>,
}

/// What is posted in a round, and to which copies.
#[derive(Clone, Copy)]
struct Part {
    records: bool,
    bodies: bool,
    to: To,
    /// With the locks behind it: nobody needs them any more.
    unlock: bool,
    /// And to the version cache of a node, if there is one: the time of the commit.
    tells: Option<u64>,
}

/// How an install went.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Installed {
    /// Primaries are unlocked already.
    pub(crate) unlocked: bool,
    /// The version cache of a node knows, if there is one.
    pub(crate) told: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum To {
    All,
    /// Those that are whole: whoever makes a copy does not look at others than the primary.
    Backups,
    /// And the copies in the making.
    Primaries,
}

impl Txn {
    /// Records with their places, and bodies.
    pub(crate) async fn prepare(
        &mut self,
        time: u64,
        logged: Option<&Logged>,
        released: &Released,
    ) -> Result<Writes, TxnError> {
        let lock = self.lock.ok_or_else(|| TxnError::Refused("nothing is locked".into()))?;
        let objects = self.entries.iter().filter(|entry| entry.new.is_some()).count() as u64;
        if objects > record::MOST_OBJECTS {
            return Err(TxnError::Refused(format!("a transaction that writes {objects} objects")));
        }
        let is_logged = logged.is_some_and(|logged| logged.is_of(self));
        let mut all = Writes { logged: is_logged, ..Writes::default() };
        all.words.reserve(objects as usize * 20);
        for (at, slot) in logged.iter().flat_map(|logged| &logged.slots) {
            if self.entries[*at].new.is_none() {
                all.stale.push((self.entries[*at].target.addr, slot.0));
            }
        }
        for at in 0..self.entries.len() {
            if self.entries[at].new.is_none() {
                continue;
            }
            let (prev, spilled) = match logged.and_then(|logged| logged.slot(at)) {
                Some(slot) => slot,
                None => self.take_slot(at, time, released).await?,
            };
            let entry = &self.entries[at];
            let new = entry.new.as_ref().expect("seen above");
            let Target { addr: object, room } = entry.target;
            let (fresh, erased) = (entry.fresh, !new.is_present());
            let id = lock.to_word();
            let record = Record { id, objects, object, room, fresh, erased, time };
            let begin = all.words.len();
            record.extend(prev, &entry.version, &mut all.words);
            let object = all.words.len();
            new.extend(time, prev, &mut all.words);
            let end = all.words.len();
            let write = Write { entry: at, record_at: prev, spilled, record: begin, object, end };
            all.writes.push(write);
        }
        Ok(all)
    }

    /// Records and bodies to all replicas. After this is posted there is no way back.
    pub(crate) async fn install(
        &self,
        all: &Writes,
        logged: Option<&mut Logged>,
        time: u64,
    ) -> Result<Installed, TxnError> {
        let unlocks = self.may_unlock(all);
        let installed = self.post_in_order(all, logged, unlocks, time).await;
        match installed {
            // Acknowledged by all replicas of a configuration that counts.
            Ok(()) if self.leave.is_valid(|| self.agent.worker.now()) => {
                Ok(Installed { unlocked: unlocks, told: true })
            }
            _ => {
                let installed = Box::pin(self.install_again(all, unlocks, time)).await;
                installed.map(|()| Installed { unlocked: false, told: false })
            }
        }
    }

    /// Whether the last round may give the locks of primaries back. When it is posted all backups have what was written, and where there is only
    /// one queue to all primaries, no lock is given back before the last body is there.
    fn may_unlock(&self, all: &Writes) -> bool {
        let config = self.leave.config();
        let primary = |write: &Write| {
            let region = config.region(self.entries[write.entry].target.addr.region())?;
            let has_backups = region.replicas.len() > 1 && region.joining.is_empty();
            has_backups.then(|| region.replicas[0].node)
        };
        let mut primaries = all.writes.iter().map(primary);
        let first = primaries.next().flatten();
        // With opacity nobody reads it before its time is past.
        let in_turn = self.protocol().copies == Copies::BackupsFirst && !self.is_opaque();
        in_turn
            && !self.is_durable(&self.queues)
            && first.is_some()
            && primaries.all(|at| at == first)
    }

    /// Whether a commit is on disk when it is reported.
    fn is_durable(&self, queues: &Queues) -> bool {
        self.agent.session.limits.durable && queues.keep_anything()
    }

    /// After an error, or when the regions moved: the same bytes to the same places, on all replicas that hold the lock
    /// and are there by a configuration that counts; and then a look at each of them. Until that succeeds, or others have
    /// taken this process for dead: then they decide.
    async fn install_again(&self, all: &Writes, unlocks: bool, time: u64) -> Result<(), TxnError> {
        let agent = &self.agent;
        for tries in 0u32.. {
            probe!("an install is posted again");
            if let Err(fenced) = agent.check_fenced() {
                return Err(TxnError::Pending(fenced.to_string()));
            }
            agent.worker.sleep(Duration::from_micros(1 << tries.min(10))).await;
            let Ok((permit, queues)) = agent.act().await else { continue };
            let is_lost = |write: &Write| {
                let held = self.held(permit.config(), self.entries[write.entry].target.addr);
                held.is_ok_and(|mut held| held.next().is_none())
            };
            if all.writes.iter().all(is_lost) {
                return Err(TxnError::Pending("all copies are lost".into()));
            }
            if unlocks {
                // What was unlocked was written everywhere, and others may have written it again.
                match self.is_unlocked(all, permit.config(), &queues).await {
                    Ok(false) => {}
                    Ok(true) if permit.is_valid(agent.worker.now()) => return Ok(()),
                    _ => continue,
                }
            }
            if self.post_at_once(all, permit.config(), &queues).await.is_err() {
                continue;
            }
            match self.is_installed(all, time, permit.config(), &queues).await {
                Err(_) => continue,
                _ if !permit.is_valid(agent.worker.now()) => continue,
                Ok(true) => return Ok(()),
                Ok(false) => break,
            }
        }
        probe!("an install was taken back by others");
        Err(TxnError::Pending("others have decided".into()))
    }

    /// The replicas of an object that hold the lock, as far as they are there by a configuration.
    /// None, where the whole region is lost: the others have not to wait for that.
    fn held(&self, config: &Config, addr: Addr) -> Result<impl Iterator<Item = Replica>, TxnError> {
        let locked = written(self.leave.config(), addr)?;
        let same = config.epoch == self.leave.config().epoch;
        Ok(locked.filter(move |replica| same || config.has(addr.region(), replica)))
    }

    /// The rounds of the protocol.
    async fn post_in_order(
        &self,
        all: &Writes,
        mut logged: Option<&mut Logged>,
        unlocks: bool,
        time: u64,
    ) -> Result<(), TxnError> {
        let (config, queues) = (self.leave.config(), &*self.queues);
        if let Some(logged) = logged.as_deref_mut().filter(|_| self.keeps_in_any_order(queues)) {
            if !logged.is_written()? {
                self.trip();
            }
            logged.written().await?;
        }
        let records = !all.logged && !self.post_records(all, config, queues).await?;
        // The cache is told with the first bodies: before any lock is given back.
        let part = Part { records, bodies: true, to: To::All, unlock: false, tells: Some(time) };
        match self.protocol().copies {
            Copies::Together => self.post_part(all, config, queues, part).await?,
            Copies::BackupsFirst => {
                self.post_part(all, config, queues, Part { to: To::Backups, ..part }).await?;
                let part = Part { to: To::Primaries, unlock: unlocks, tells: None, ..part };
                self.post_part(all, config, queues, part).await?;
            }
        }
        self.flush_writes(all, config, queues).await?;
        match logged {
            Some(logged) => logged.written().await,
            None => Ok(()),
        }
    }

    /// All to all.
    async fn post_at_once(
        &self,
        all: &Writes,
        config: &Config,
        queues: &Queues,
    ) -> Result<(), TxnError> {
        let records = !self.post_records(all, config, queues).await?;
        let part = Part { records, bodies: true, to: To::All, unlock: false, tells: None };
        self.post_part(all, config, queues, part).await?;
        self.flush_writes(all, config, queues).await
    }

    /// Whether what comes later may survive the power without what came before.
    pub(crate) fn keeps_in_any_order(&self, queues: &Queues) -> bool {
        let first = self.is_durable(queues) && queues.keep_in_any_order();
        first && !self.agent.has(Trap::BodyBeforeRecords)
    }

    /// A round for the records alone, if there is one: where persistence has no order, a body is posted only when all
    /// records are durable, and the locks with them.
    async fn post_records(
        &self,
        all: &Writes,
        config: &Config,
        queues: &Queues,
    ) -> Result<bool, TxnError> {
        let ahead = self.protocol().undo == Undo::Ahead || self.keeps_in_any_order(queues);
        if ahead {
            let part =
                Part { records: true, bodies: false, to: To::All, unlock: false, tells: None };
            self.post_part(all, config, queues, part).await?;
        }
        Ok(ahead)
    }

    async fn post_part(
        &self,
        all: &Writes,
        config: &Config,
        queues: &Queues,
        part: Part,
    ) -> Result<(), TxnError> {
        let agent = &self.agent;
        let mut round = agent.worker.round().counted(&agent.tally, INSTALL);
        let mut posted = false;
        for (addr, record_at) in all.stale.iter().filter(|_| part.records) {
            for replica in self.held(config, *addr)? {
                round.to(queues.to(replica.node)?).write(replica.base + record_at, &[0; 8]);
            }
        }
        for write in &all.writes {
            let addr = self.entries[write.entry].target.addr;
            for replica in self.held(config, addr)?.filter(|it| self.is_among(part.to, addr, it)) {
                posted = true;
                self.post_copy(all, write, part, round.to(queues.to(replica.node)?), replica.base);
            }
        }
        if let Some(time) = part.tells
            && let Some(versions) = FarVersions::of(config, queues)?
            && !agent.has(Trap::CacheIsNotTold)
        {
            for write in &all.writes {
                posted = true;
                versions.tell(self.entries[write.entry].target.addr, time, &mut round);
            }
        }
        if !posted {
            return Ok(());
        }
        if part.unlock {
            let word = self.lock.map_or(0, Lock::to_word);
            for addr in all.writes.iter().map(|write| self.entries[write.entry].target.addr) {
                for replica in
                    self.held(config, addr)?.filter(|it| self.is_among(part.to, addr, it))
                {
                    let at = replica.base + addr.offset() + LOCK;
                    round.to(queues.to(replica.node)?).cas(at, word, 0);
                }
            }
        }
        let flushes = !(part.bodies && agent.has(Trap::CommitWithoutFlush));
        if self.is_durable(queues) && flushes {
            let nodes = self.flushed(all, config, part)?;
            queues.flush(&mut round, nodes.into_iter());
        }
        self.trip();
        round.ring().await?;
        Ok(())
    }

    /// An object's part of a round, for one copy.
    fn post_copy(
        &self,
        all: &Writes,
        write: &Write,
        part: Part,
        mut bell: Doorbell<'_>,
        base: u64,
    ) {
        let entry = &self.entries[write.entry];
        let (at, record_at) = (base + entry.target.addr.offset(), base + write.record_at);
        if part.records && write.spilled {
            let spilled = Raw::Spilled(self.agent.owner).to_word();
            bell.write(record_at - RECORD_HEAD, &[spilled]);
        }
        if part.records {
            bell.write(record_at, &all.words[write.record..write.object]);
        }
        if !part.bodies {
            // It may have been taken by another connection: what was read is flushed, too.
            bell.read(at + LOCK, 8);
        }
        if part.bodies && entry.fresh {
            bell.write(at + HEADER, &[IN_USE]);
        }
        if part.bodies {
            bell.write(at + TS, &all.words[write.object..write.end]);
        }
        if self.agent.has(Trap::EarlyRelease) {
            bell.write(at + LOCK, &[0]);
        }
    }

    /// Whether a replica of an object is among those that a part goes to.
    fn is_among(&self, to: To, addr: Addr, replica: &Replica) -> bool {
        let is_backup = || {
            let copies = replicas(self.leave.config(), addr);
            copies.is_ok_and(|copies| copies[1..].contains(replica))
        };
        match to {
            To::All => true,
            To::Backups => is_backup(),
            To::Primaries => !is_backup(),
        }
    }

    /// The nodes that a part flushes, behind its writes.
    fn flushed(
        &self,
        all: &Writes,
        config: &Config,
        part: Part,
    ) -> Result<SmallVec<[u16; 8]>, TxnError> {
        let selective = self.protocol().flush == Flush::Backups && part.bodies;
        let mut nodes = SmallVec::new();
        // What is erased stays so, or a repairer finds it.
        for (addr, _) in all.stale.iter().filter(|_| part.records) {
            nodes.extend(self.held(config, *addr)?.map(|replica| replica.node));
        }
        if part.bodies && self.protocol().flush == Flush::Writes {
            return Ok(nodes);
        }
        for addr in all.writes.iter().map(|write| self.entries[write.entry].target.addr) {
            let copies = self.held(config, addr)?.filter(|it| self.is_among(part.to, addr, it));
            let copies: SmallVec<[Replica; 4]> = copies.collect();
            // Where there is only one it has to do.
            let skips = selective && copies.len() > 1;
            let primary = replicas(self.leave.config(), addr)?[0];
            let flushed = |it: &&Replica| !skips || **it != primary;
            nodes.extend(copies.iter().filter(flushed).map(|replica| replica.node));
        }
        Ok(nodes)
    }

    /// A flush for every write, in a round of its own, where the protocol does not know better.
    async fn flush_writes(
        &self,
        all: &Writes,
        config: &Config,
        queues: &Queues,
    ) -> Result<(), TxnError> {
        if self.protocol().flush != Flush::Writes || !self.is_durable(queues) {
            return Ok(());
        }
        let agent = &self.agent;
        let mut round = agent.worker.round().counted(&agent.tally, INSTALL);
        for addr in all.writes.iter().map(|write| self.entries[write.entry].target.addr) {
            for replica in self.held(config, addr)? {
                queues.flush(&mut round, std::iter::once(replica.node));
            }
        }
        self.trip();
        round.ring().await?;
        Ok(())
    }

    /// Whether a primary that was to be unlocked is not locked any more by this.
    async fn is_unlocked(
        &self,
        all: &Writes,
        config: &Config,
        queues: &Queues,
    ) -> Result<bool, TxnError> {
        let agent = &self.agent;
        let word = self.lock.map_or(0, Lock::to_word);
        let mut round = agent.worker.round().counted(&agent.tally, INSTALL);
        let mut looks = Vec::new();
        for addr in all.writes.iter().map(|write| self.entries[write.entry].target.addr) {
            let primaries = self.held(config, addr)?;
            for replica in primaries.filter(|it| self.is_among(To::Primaries, addr, it)) {
                let at = replica.base + addr.offset() + LOCK;
                looks.push(round.to(queues.to(replica.node)?).read(at, 8));
            }
        }
        let done = round.ring().await?;
        Ok(looks.into_iter().any(|lock| done[lock][0] != word))
    }

    /// Whether all that was written is there, and locked.
    async fn is_installed(
        &self,
        all: &Writes,
        time: u64,
        config: &Config,
        queues: &Queues,
    ) -> Result<bool, TxnError> {
        let agent = &self.agent;
        let word = self.lock.map_or(0, Lock::to_word);
        let mut round = agent.worker.round().counted(&agent.tally, INSTALL);
        let mut looks = Vec::new();
        for write in &all.writes {
            let addr = self.entries[write.entry].target.addr;
            for replica in self.held(config, addr)? {
                let mut bell = round.to(queues.to(replica.node)?);
                let at = replica.base + addr.offset();
                looks.push((bell.read(at + LOCK, 8), bell.read(at + TS, 8)));
            }
        }
        let done = round.ring().await?;
        Ok(looks.into_iter().all(|(lock, ts)| (done[lock][0], done[ts][0]) == (word, time)))
    }
}
