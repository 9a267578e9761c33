//! The keeper of a node: it beats in the node's memory, and ends when the node is put out.
//!
//! It is a client of its own node like any other, with verbs only: what a node is asked to do stays
//! reading and writing words. A node whose keeper is dead is put out, even if its NIC still answers.
//!
//! Nobody needs a node to have a lease: who uses it has one. A node that hears of no manager for long
//! cannot tell whether it is cut off, or the manager is; its memory may be the last copy, so it asks the
//! store, and begins another life only when the store says that this one is over.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use farside_fabric::{Queue, Result, Worker, probe};

use crate::config::Config;
use crate::control::{Announcement, MAGIC, MANAGER, NODE, NODE_BEAT};
use crate::petition::{Newcomer, Petition};
use crate::store::{ConfigStore, Reader};
use crate::terms::Terms;

/// Keeps one node, in one of its lives.
#[derive(Debug)]
pub struct Keeper {
    worker: Worker,
    queue: Queue,
    terms: Terms,
    incarnation: u64,
    versions: bool,
}

/// Why a keeper has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lapsed {
    /// The node is no member any more: what it holds is worth nothing.
    PutOut,
    /// The node was asked to leave, and has left: it does not come back.
    Drained,
    /// The node does not answer its keeper, or is in another life.
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
        Ok(Keeper { worker: worker.clone(), queue, terms, incarnation, versions: false })
    }

    /// Of a node for a version cache, and for no regions.
    #[must_use]
    pub fn for_versions(self, versions: bool) -> Self {
        Keeper { versions, ..self }
    }

    /// The node as one that is no member yet, reached at `address`.
    pub fn newcomer(&self, address: &str) -> Newcomer {
        let on_chip = self.queue.capabilities().on_chip_bytes;
        let (incarnation, bytes) = (self.incarnation, self.queue.memory_bytes() - on_chip);
        Newcomer { address: address.into(), incarnation, bytes, versions: self.versions }
    }

    /// Asks for membership at `address`, and beats until the node is put out. `heard` is told when the
    /// manager falls silent, and when it is heard again.
    pub async fn keep(
        &self,
        store: &Rc<dyn ConfigStore>,
        address: &str,
        heard: impl Fn(bool),
    ) -> Lapsed {
        let mut beating = pin!(self.beat_on(store, heard));
        let mut asking = pin!(self.ask(&**store, address));
        poll_fn(|cx| match beating.as_mut().poll(cx) {
            Poll::Ready(lapsed) => Poll::Ready(lapsed),
            Poll::Pending => asking.as_mut().poll(cx),
        })
        .await
    }

    /// Until the first grant it waits: the node is no member yet.
    async fn beat_on(&self, store: &Rc<dyn ConfigStore>, heard: impl Fn(bool)) -> Lapsed {
        let reader = Reader::new(store);
        // No two lives count alike, so that a grant for one is none for the other.
        let first = self.incarnation << 40;
        let (mut granted, mut since) = (0, self.worker.now());
        let mut silent = false;
        for beat in first + 1.. {
            let now = self.worker.now();
            match self.beat(beat).await {
                Err(_) if self.queue.reconnect().await.is_err() => return Lapsed::NodeGone,
                Err(_) => {}
                Ok(None) => return Lapsed::NodeGone,
                Ok(Some(new)) if new > granted.max(first) => {
                    (granted, since) = (new, now);
                    if std::mem::take(&mut silent) {
                        heard(true);
                    }
                }
                Ok(Some(_)) => {}
            }
            if granted > 0 && now - since > self.terms.grace() {
                if !std::mem::replace(&mut silent, true) {
                    probe!("a node hears of no manager for long");
                    heard(false);
                }
                if let Some(lapsed) = self.is_put_out(&reader).await {
                    return lapsed;
                }
            }
            self.worker.next_tick(self.terms.calm_tick()).await;
        }
        Lapsed::PutOut
    }

    /// Whether the store says that this life of the node is over.
    async fn is_put_out(&self, reader: &Reader) -> Option<Lapsed> {
        let answer = reader.read(&self.worker, self.terms.answer()).await;
        let config = answer.and_then(Result::ok)?.newest()?;
        (!self.is_member(&config)).then(|| self.why(&config))
    }

    /// Why it is no member any more.
    fn why(&self, config: &Config) -> Lapsed {
        match config.drained.contains(&self.incarnation) {
            true => Lapsed::Drained,
            false => Lapsed::PutOut,
        }
    }

    fn is_member(&self, config: &Config) -> bool {
        config.nodes.iter().any(|node| node.incarnation == self.incarnation)
    }

    /// Asks to be a member, at `address`, until this life of the node is one; returns when it is over.
    async fn ask(&self, store: &dyn ConfigStore, address: &str) -> Lapsed {
        let petition = Petition::Join(self.newcomer(address));
        let (mut known, mut member) = (0, false);
        loop {
            if let Ok(stored) = store.read(known).await {
                if let Some(config) = stored.newest() {
                    if config.is_past(self.incarnation) {
                        return self.why(&config);
                    }
                    (known, member) = (stored.revision, self.is_member(&config));
                }
                if !member {
                    let _ = store.petition(&petition.key(), &petition.encode()).await;
                }
            }
            // A member only wants to know whether it still is one.
            self.worker.sleep(if member { 16 } else { 4 } * self.terms.lease).await;
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
        // One that is torn grants nothing.
        let heard = Announcement::from_words(&done[manager]);
        Ok(mine.then(|| heard.map_or(0, |heard| heard.grant)))
    }
}
