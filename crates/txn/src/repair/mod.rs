//! Repair: what a dead session left behind is brought to an end, by whoever notices its silence (`rtx.txt` §4).
//!
//! 1. *Claim* the repair: one repairs at a time. A claim is taken over when its holder is silent, too, and was fenced.
//! 2. *Fence* the session: nothing that it sent has an effect any more.
//! 3. Read its records on all replicas, and then the objects that they name.
//! 4. *Decide*, for each transaction that still holds a lock: see [`remains`].
//! 5. *Commit* by giving the locks back, or *abort* by restoring old versions everywhere, and only then giving the locks
//!    back.
//! 6. What it owned is nobody's; its locks without a record are nobody's; its place is free. Not before it is durable that
//!    its locks were given back: one that comes back with the power would be judged without all of its records.
//!
//! A repairer may die at any verb: the next one finds everything as it was, or further on.

mod records;
mod remains;

use std::rc::Rc;
use std::time::Duration;

use farside_fabric::{ClientId, probe};
use farside_pool::{Addr, Config, Permit};

use crate::agent::Agent;
use crate::object::{HEADER, IN_USE, LOCK, Raw, TS};
use crate::place::{Decided, read_line, vacate};
use crate::queues::{Queues, written};
use crate::system::{self, CLIENT, REPAIRER};
use crate::watch::{self, Silent};
use crate::{Trap, Txn, TxnError, Why, horizon};
use records::Half;
use remains::Remains;

/// Who was not heard of for so long may be dead.
const QUIET: Duration = Duration::from_millis(2);

/// How often whoever waits for a dead one looks at what is known of it.
const PAUSE: Duration = Duration::from_micros(100);
const SHORT_PAUSE: Duration = Duration::from_micros(2);

/// A repair.
struct Repair<'a> {
    agent: &'a Rc<Agent>,
    permit: Permit,
    queues: Rc<Queues>,
    dead: Silent,
    /// Whether it lives or not.
    forced: bool,
}

#[cfg(feature = "traps")]
impl Agent {
    /// Repairs a process at once, as if it had been silent for long.
    pub async fn repair_now(self: &Rc<Self>, client: ClientId) {
        if let Some(dead) = self.session.watch.find(client.0) {
            repair(Rc::clone(self), dead, true).await;
        }
    }
}

/// Repairs everybody who is silent, beside other things.
pub(crate) fn repair_the_dead(agent: &Rc<Agent>) {
    let session = &agent.session;
    let patience = watch::patience(agent.lease());
    for dead in session.watch.silent(agent.worker.now(), session.identity.client, patience) {
        let repair = repair(Rc::clone(agent), dead, false);
        agent.worker.spawn(repair).detach();
    }
}

async fn repair(agent: Rc<Agent>, dead: Silent, forced: bool) {
    let Ok((permit, queues)) = agent.act().await else { return };
    // That may have taken a while.
    let (now, patience) = (agent.worker.now(), watch::patience(agent.lease()));
    let silent = agent.session.watch.silent(now, agent.session.identity.client, patience);
    if !forced && !silent.contains(&dead) {
        return;
    }
    // One thread of a process is enough.
    let Some(_repairing) = agent.session.watch.begin(dead.slot) else { return };
    // Who stops driving this thread waits for that: nobody else repairs it meanwhile.
    let _busy = agent.busy();
    let repair = Repair { agent: &agent, permit, queues, dead, forced };
    match repair.run().await {
        Ok(Some(erased)) => {
            probe!("a dead session is repaired");
            drop(repair);
            free(&agent, &erased).await;
        }
        Ok(None) => probe!("somebody else repairs a dead session"),
        Err(_) => {
            probe!("a repair ends with an error, and is tried again");
            repair.give_up().await;
            agent.worker.sleep(agent.lease() / 32).await;
        }
    }
}

impl Txn {
    /// Somebody's lock is in the way. What is nobody's is given back. If its owner seems to be dead, this waits until that
    /// is repaired; it gives up its own locks before, so that nobody waits for it meanwhile, and is over then.
    pub(crate) async fn meet(&mut self, addr: Addr, word: u64) -> Result<(), TxnError> {
        let agent = Rc::clone(&self.agent);
        let (watch, worker, lease) = (&agent.session.watch, &agent.worker, agent.lease());
        let is_quiet = || watch.silence(word, worker.now()) >= QUIET.min(lease / 2);
        let quiet = !watch.is_orphan(word) && is_quiet();
        let release = if quiet && self.holds_locks() { self.take_locks_alone() } else { None };
        let over = release.is_some();
        if let Some(release) = release {
            release.run().await?;
        }
        let start = worker.now();
        while quiet && is_quiet() && worker.now() - start < 4 * lease {
            probe!("a transaction waits for one who seems to be dead");
            let patience = watch::patience(lease);
            match patience.checked_sub(watch.silence(word, worker.now())) {
                Some(left) => worker.sleep(left.min(PAUSE)).await,
                None => {
                    // It is being repaired.
                    worker.sleep(SHORT_PAUSE).await;
                    horizon::look(&agent).await?;
                }
            }
        }
        if watch.is_orphan(word) {
            let config = self.leave.config();
            self.queues.swap_all(worker, config, addr, LOCK, (word, 0)).await?;
        }
        if over { Err(TxnError::Conflict(Why::Locked)) } else { Ok(()) }
    }
}

impl Repair<'_> {
    fn config(&self) -> &Config {
        self.permit.config()
    }

    /// What the dead had deleted, if it was repaired by us.
    async fn run(&self) -> Result<Option<Vec<Addr>>, TxnError> {
        if !self.agent.has(Trap::RacingRepairers) && !self.claim().await? {
            return Ok(None);
        }
        if !self.agent.has(Trap::NoFence) {
            self.fence(self.dead.client).await?;
        }
        let (records, halves) = self.find_records().await?;
        let remains = self.find_remains(records).await?;
        self.resolve(&remains).await?;
        self.clear(&halves).await?;
        self.finish().await?;
        let committed = remains.iter().filter(|remains| remains.is_committed());
        Ok(Some(committed.flat_map(|remains| remains.erased()).collect()))
    }

    /// Somebody else may try, who reaches all nodes perhaps; but not before nothing of ours is on its way any more.
    async fn give_up(self) {
        let Repair { agent, permit, dead, forced, .. } = self;
        drop(permit);
        let Ok((permit, queues)) = agent.act().await else { return };
        let again = Repair { agent, permit, queues, dead, forced };
        if !again.queues.is_broken()
            && let Ok(word) = again.word(REPAIRER)
        {
            let _ = word.give_up(agent.session.identity.client).await;
        }
    }

    fn word(&self, word: u64) -> Result<Decided<'_>, TxnError> {
        let at = system::line(self.dead.slot) + word;
        Decided::new(&self.agent.worker, &self.queues, self.config(), at)
    }

    /// Whether the repair is ours.
    async fn claim(&self) -> Result<bool, TxnError> {
        let agent = self.agent;
        let me = agent.session.identity.client;
        let word = self.word(REPAIRER)?;
        if let Some(holder) = word.take(0, me).await? {
            // Who waits for a connection keeps nobody from a change.
            if self.queues.is_broken() {
                return Ok(false);
            }
            let patience = watch::patience(agent.lease());
            // It may have come just now.
            horizon::look(agent).await?;
            if agent.session.watch.lives(holder, agent.worker.now(), patience) {
                return Ok(false);
            }
            probe!("a repair is taken over from one who died");
            self.fence(holder).await?;
            if word.take(holder, me).await?.is_some() {
                return Ok(false);
            }
        }
        // Whoever repaired it before us has given up its place before it gave up the claim.
        let line = read_line(&agent.worker, &self.queues, self.config(), self.dead.slot).await?;
        let repaired = line.client != self.dead.client;
        // To claim it may have taken a while, in which it was heard again.
        if repaired || line.beat != self.dead.beat && !self.forced {
            if repaired {
                probe!("a dead session was repaired meanwhile");
            } else {
                probe!("a session that seemed to be dead is heard again");
            }
            word.give_up(me).await?;
            return Ok(false);
        }
        Ok(true)
    }

    /// At every node, all at once.
    async fn fence(&self, client: u64) -> Result<(), TxnError> {
        let mut fences = Vec::new();
        for node in &self.config().nodes {
            let queue = self.queues.to(node.id)?.clone();
            let fence = async move { queue.fence(ClientId(client)).await };
            fences.push(self.agent.worker.spawn(fence));
        }
        for fence in fences {
            fence.await?;
        }
        Ok(())
    }

    /// Brings every transaction to its end.
    async fn resolve(&self, remains: &[Remains]) -> Result<(), TxnError> {
        let latest = remains.iter().map(|remains| remains.time).max().unwrap_or(0);
        self.agent.wait_past(latest).await?;
        let aborted = remains.iter().filter(|remains| !self.is_committed(remains));
        self.restore(aborted.flat_map(|remains| remains.restores())).await?;
        // All is restored everywhere before the first lock is given back, and stays so: who reads it builds on it.
        if !self.agent.has(Trap::RepairWithoutFlush) {
            self.queues.flush_all(&self.agent.worker).await?;
        }
        self.release(remains.iter().flat_map(|remains| remains.locks())).await?;
        if !self.agent.has(Trap::RepairForgetsEarly) {
            self.queues.flush_all(&self.agent.worker).await?;
        }
        Ok(())
    }

    fn is_committed(&self, remains: &Remains) -> bool {
        let committed = match () {
            () if self.agent.has(Trap::RecordWithoutN) => remains.is_installed(),
            () if self.agent.has(Trap::NotHeldIsCommitted) => remains.is_partly_released(),
            () => remains.is_committed(),
        };
        if committed {
            probe!("a transaction of a dead session is committed");
        } else {
            probe!("a transaction of a dead session is aborted");
        }
        committed
    }

    /// Old versions, each from the replica's own record.
    async fn restore(
        &self,
        restores: impl Iterator<Item = remains::Restore>,
    ) -> Result<(), TxnError> {
        let mut round = self.agent.worker.round();
        let mut any = false;
        for restore in restores {
            let mut copies = written(self.config(), restore.object)?;
            let replica = copies.nth(restore.replica).expect("it was read there");
            let at = replica.base + restore.object.offset();
            let mut bell = round.to(self.queues.to(replica.node)?);
            if restore.fresh {
                bell.write(at + HEADER, &[0]);
            }
            bell.write(at + TS, &restore.words);
            any = true;
        }
        if any {
            round.ring().await?;
        }
        Ok(())
    }

    async fn release(&self, locks: impl Iterator<Item = (Addr, u64)>) -> Result<(), TxnError> {
        let mut round = self.agent.worker.round();
        let mut any = false;
        for (addr, id) in locks {
            for replica in written(self.config(), addr)? {
                let at = replica.base + addr.offset() + LOCK;
                round.to(self.queues.to(replica.node)?).cas(at, id, 0);
                any = true;
            }
        }
        if any {
            round.ring().await?;
        }
        Ok(())
    }

    /// Places that were about to be used, and are not on all replicas, are free everywhere.
    async fn clear(&self, halves: &[Half]) -> Result<(), TxnError> {
        if halves.is_empty() {
            return Ok(());
        }
        let mut round = self.agent.worker.round();
        for (addr, replica) in halves {
            let at = replica.base + addr.offset() + HEADER;
            round.to(self.queues.to(replica.node)?).write(at, &[0]);
        }
        round.ring().await?;
        Ok(())
    }

    /// The place is free, and what was in it is nobody's.
    async fn finish(&self) -> Result<(), TxnError> {
        let agent = self.agent;
        let since = agent.upper().await?;
        vacate(&agent.worker, &self.queues, self.config(), self.dead.slot, since).await?;
        self.word(CLIENT)?.give_up(self.dead.client).await?;
        agent.session.watch.is_repaired(self.dead.slot, since);
        self.word(REPAIRER)?.give_up(agent.session.identity.client).await
    }
}

/// What was deleted is freed: nobody else will.
async fn free(agent: &Rc<Agent>, erased: &[Addr]) {
    for addr in erased {
        if agent.free(*addr, IN_USE).await.is_err() {
            probe!("something is freed later");
            agent.free_after(0, *addr, Raw::Other);
        }
    }
}
