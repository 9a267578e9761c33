//! The keeper of a node: it beats in the node's memory, and ends when the lease does.
//!
//! It is a client of its own node like any other, with verbs only: what a node is asked to do stays
//! reading and writing words. A node whose keeper is dead lapses, even if its NIC still answers.

use std::collections::VecDeque;

use farside_fabric::{Queue, Result, Time, Worker};

use crate::config::Config;
use crate::control::{Announcement, MAGIC, MANAGER, NODE, NODE_BEAT};
use crate::petition::Petition;
use crate::store::ConfigStore;
use crate::terms::Terms;

/// Keeps one node, in one of its lives.
#[derive(Debug)]
pub struct Keeper {
    worker: Worker,
    queue: Queue,
    terms: Terms,
    incarnation: u64,
}

/// Why a keeper has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lapsed {
    /// Nobody has granted a lease for so long: the node must not be used any more.
    NoLease,
    /// The node itself does not answer its keeper.
    NodeGone,
}

impl Keeper {
    /// Prepares the memory of a fresh node; `incarnation` tells its lives apart.
    pub async fn format(
        worker: &Worker,
        queue: Queue,
        terms: Terms,
        incarnation: u64,
    ) -> Result<Self> {
        let mut round = worker.round();
        let mut bell = round.to(&queue);
        bell.write(NODE + 8, &[incarnation, 0]);
        // Last, so that nobody sees half of it.
        bell.write(NODE, &[MAGIC]);
        round.ring().await?;
        Ok(Keeper { worker: worker.clone(), queue, terms, incarnation })
    }

    /// Beats until the lease has ended. Until the first grant it waits: the node is no member yet, and
    /// nobody uses it.
    pub async fn keep(&self) -> Lapsed {
        let mut sent: VecDeque<(u64, Time)> = VecDeque::new();
        let mut valid_until: Option<Time> = None;
        // No two lives count alike, so that a grant for one is none for the other.
        let first = (self.incarnation & 0xffff_ffff) << 24;
        for beat in first + 1.. {
            let now = self.worker.now();
            if valid_until.is_some_and(|until| now >= until) {
                return Lapsed::NoLease;
            }
            sent.push_back((beat, now));
            match self.beat(beat).await {
                Err(_) if self.queue.reconnect().await.is_err() => return Lapsed::NodeGone,
                Err(_) => {}
                Ok(None) => return Lapsed::NodeGone,
                Ok(Some(granted)) => {
                    while sent.front().is_some_and(|(beat, _)| *beat < granted) {
                        sent.pop_front();
                    }
                    if let Some((_, since)) = sent.front().filter(|(beat, _)| *beat == granted) {
                        let until = *since + self.terms.lease;
                        valid_until = Some(valid_until.map_or(until, |known| known.max(until)));
                    }
                }
            }
            self.worker.sleep(self.terms.tick()).await;
        }
        Lapsed::NoLease
    }

    /// Asks to be a member, at `address`, whenever this life of the node is none. Never ends.
    pub async fn ask(&self, store: &dyn ConfigStore, address: &str) {
        let key = format!("node-{:016x}", self.incarnation);
        let petition = Petition::Join { address: address.into(), incarnation: self.incarnation };
        loop {
            let stored = store.read().await.ok();
            let config = stored.and_then(|stored| Config::decode(&stored.config?).ok());
            let is_member = config.is_some_and(|config| {
                config.nodes.iter().any(|node| node.incarnation == self.incarnation)
            });
            if !is_member {
                let _ = store.petition(&key, &petition.encode()).await;
            }
            self.worker.sleep(4 * self.terms.lease).await;
        }
    }

    /// Beats once; the beat that is granted, or `None` if this is another life of the node.
    async fn beat(&self, beat: u64) -> Result<Option<u64>> {
        let mut round = self.worker.round();
        let mut bell = round.to(&self.queue);
        bell.write(NODE_BEAT, &[beat]);
        let node = bell.read(NODE, 16);
        let manager = bell.read(MANAGER, Announcement::WORDS * 8);
        let done = round.ring().await?;
        let mine = done[node] == [MAGIC, self.incarnation];
        Ok(mine.then(|| Announcement::from_words(&done[manager]).grant))
    }
}
