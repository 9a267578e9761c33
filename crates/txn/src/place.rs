//! A session's place on the board: taken, and given back.

use std::sync::atomic::Ordering;

use farside_fabric::{Worker, probe};
use farside_pool::alloc::FREED;
use farside_pool::{Config, Links, Replica, Seat};

use crate::agent::Agent;
use crate::object::{HEADER, Raw};
use crate::queues::{Queues, replicas, waves};
use crate::session::{Identity, Limbo, Session, is_slab_owner};
use crate::space::is_joined;
use crate::system::{self, BOARD, CLIENT, LINE_WORDS, Line, OLDEST, PLACES};
use crate::{TxnError, reach, watch};

/// A word of the system chunk that is decided at the primary, and then told to the copies. One who has told all of them
/// while the configuration lasts has it, whichever of the nodes fails next.
pub(crate) struct Decided<'a> {
    worker: &'a Worker,
    queues: &'a Queues,
    copies: &'a [Replica],
    /// In the making: nobody decides by them, and they are told last.
    joining: &'a [Replica],
    word: u64,
}

impl<'a> Decided<'a> {
    pub(crate) fn new(
        worker: &'a Worker,
        queues: &'a Queues,
        config: &'a Config,
        word: u64,
    ) -> Result<Self, TxnError> {
        let copies = replicas(config, system::catalog_root())?;
        let joining = config.region(system::REGION).map_or(&[][..], |region| &region.joining);
        Ok(Decided { worker, queues, copies, joining, word })
    }

    /// Takes it; what was there otherwise.
    pub(crate) async fn take(&self, from: u64, to: u64) -> Result<Option<u64>, TxnError> {
        let found = self.swap(from, to).await?;
        // It may be ours from an attempt that ended with an error.
        if found != from && found != to {
            return Ok(Some(found));
        }
        self.tell(&self.copies[1..], to).await?;
        self.tell(self.joining, to).await?;
        // Whatever is done in its name is on disk only if this is.
        self.queues.flush_all(self.worker).await?;
        Ok(None)
    }

    /// Gives it up, if it is ours: the copies first, while nobody else writes there.
    pub(crate) async fn give_up(&self, from: u64) -> Result<(), TxnError> {
        if self.swap(from, from).await? != from {
            return Ok(());
        }
        // Nobody looks after what was done in its name any more: that stays as it is.
        self.queues.flush_all(self.worker).await?;
        self.tell(&self.copies[1..], 0).await?;
        self.swap(from, 0).await?;
        if !self.joining.is_empty() {
            // By now it may be somebody else's.
            let mut round = self.worker.round();
            for Replica { node, base } in self.joining {
                round.to(self.queues.to(*node)?).cas(base + self.word, from, 0);
            }
            round.ring().await?;
        }
        Ok(())
    }

    async fn swap(&self, from: u64, to: u64) -> Result<u64, TxnError> {
        let Replica { node, base } = self.copies[0];
        let mut round = self.worker.round();
        let found = round.to(self.queues.to(node)?).cas(base + self.word, from, to);
        Ok(round.ring().await?[found])
    }

    async fn tell(&self, copies: &[Replica], value: u64) -> Result<(), TxnError> {
        if copies.is_empty() {
            return Ok(());
        }
        let mut round = self.worker.round();
        for Replica { node, base } in copies {
            round.to(self.queues.to(*node)?).write(base + self.word, &[value]);
        }
        round.ring().await?;
        Ok(())
    }
}

impl Identity {
    /// Takes a place on the board, under an id that nobody else has.
    pub async fn claim(
        worker: &Worker,
        links: &Links,
        seat: &Seat,
        client: u64,
    ) -> Result<Self, TxnError> {
        let (permit, queues) = reach::approach(worker, links, seat, client).await?;
        let config = permit.config();
        reach::prepare(worker, &queues, config).await?;
        let Replica { node, base } = replicas(config, system::catalog_root())?[0];
        let mut round = worker.round();
        let board = round.to(queues.to(node)?).read(base + BOARD, PLACES * LINE_WORDS * 8);
        let board = round.ring().await?[board].to_vec();
        let (lines, _) = board.as_chunks::<LINE_WORDS>();
        for (slot, line) in (0..PLACES as u16).zip(lines.iter().map(Line::from_words)) {
            if line.client != 0 {
                continue;
            }
            let word = Decided::new(worker, &queues, config, system::line(slot) + CLIENT)?;
            if word.take(0, client).await?.is_some() {
                continue;
            }
            // Whoever had it before wrote this before it gave up the place.
            let Line { since, .. } = read_line(worker, &queues, config, slot).await?;
            return Ok(Identity { slot, client, since });
        }
        Err(TxnError::Refused("the database has as many processes as it can".into()))
    }
}

impl Session {
    /// Gives back what the session has, when all its threads have ended. One that leaves locks behind stays, and is
    /// repaired like a dead one.
    pub async fn retire(
        &self,
        worker: &Worker,
        links: &Links,
        seat: &Seat,
    ) -> Result<(), TxnError> {
        if self.is_unclean() {
            return Ok(());
        }
        let (permit, queues) = reach::approach(worker, links, seat, self.identity.client).await?;
        let config = permit.config();
        let horizon = self.horizon.load(Ordering::Acquire);
        let limbo = std::mem::take(&mut *self.limbo());
        for Limbo { time, addr, header } in limbo {
            // What somebody may still read is freed by whoever adopts its slab.
            // Where a copy is in the making nothing is freed.
            let free = time < horizon && !is_joined(config, addr);
            let to = if free { FREED } else { Raw::Doomed.to_word() };
            queues.swap_all(worker, config, addr, HEADER, (header, to)).await?;
        }
        vacate(worker, &queues, config, self.identity.slot, self.last_use()).await?;
        let word =
            Decided::new(worker, &queues, config, system::line(self.identity.slot) + CLIENT)?;
        word.give_up(self.identity.client).await
    }
}

/// A line of the board, at the primary.
pub(crate) async fn read_line(
    worker: &Worker,
    queues: &Queues,
    config: &Config,
    slot: u16,
) -> Result<Line, TxnError> {
    let Replica { node, base } = replicas(config, system::catalog_root())?[0];
    let mut round = worker.round();
    let line = round.to(queues.to(node)?).read(base + system::line(slot), LINE_WORDS * 8);
    let words: [u64; LINE_WORDS] = round.ring().await?[line].try_into().expect("a whole line");
    Ok(Line::from_words(&words))
}

/// What the session in a place owned is nobody's, and it reads nothing any more; what was locked by its name until a
/// time is nobody's, too.
pub(crate) async fn vacate(
    worker: &Worker,
    queues: &Queues,
    config: &Config,
    slot: u16,
    since: u64,
) -> Result<(), TxnError> {
    for place in config.regions.iter().filter_map(|region| queues.place(region)) {
        place.disown(worker, &|owner| is_slab_owner(slot, owner)).await?;
    }
    for copies in waves(config, system::catalog_root())? {
        let mut round = worker.round();
        for replica in copies {
            let at = replica.base + system::line(slot) + OLDEST;
            round.to(queues.to(replica.node)?).write(at, &[0, 0, 0, since, 0]);
        }
        round.ring().await?;
    }
    Ok(())
}

/// Whether a work of which one is enough is ours: a word of the system chunk says whose it is. Two who do it do no harm.
pub(crate) async fn claim(agent: &Agent, word: u64) -> Result<bool, TxnError> {
    let (permit, queues) = agent.act().await?;
    let word = Decided::new(&agent.worker, &queues, permit.config(), word)?;
    let me = agent.session.identity.client;
    let Some(holder) = word.take(0, me).await? else { return Ok(true) };
    let patience = watch::patience(agent.lease());
    if agent.session.watch.lives(holder, agent.worker.now(), patience) {
        return Ok(false);
    }
    probe!("a work is taken over from one who died");
    Ok(word.take(holder, me).await?.is_none())
}
