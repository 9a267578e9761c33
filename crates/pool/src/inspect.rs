//! A look at a pool from outside, without joining it.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use farside_fabric::Worker;
use serde::Serialize;

use crate::RegionId;
use crate::alloc::Place;
use crate::config::{Config, Node};
use crate::control::{Announcement, MAGIC, MANAGER, NODE, Signs, session};
use crate::links::{Connect, Links};
use crate::store::{ConfigStore, StoreError};

/// What a pool looks like.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Inspection {
    /// The newest configuration in the store.
    pub config: Config,
    /// The newest that counts, as far as any node was told.
    pub counting: u64,
    /// Whether a manager is at work.
    pub managed: bool,
    /// How each node is.
    pub nodes: BTreeMap<u16, Condition>,
    /// How each session is, by its client id; empty if the home node does not answer.
    pub sessions: BTreeMap<u64, SessionCondition>,
    /// How the space of each region is used, where its primary answers.
    pub space: BTreeMap<u16, Usage>,
    /// What is asked of the manager.
    pub petitions: usize,
}

/// How a node is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Condition {
    /// It answers, and its keeper beats.
    Alive,
    /// It answers, but its keeper does not beat.
    Silent,
    /// It is in another life than the one that is a member.
    Reborn,
    /// It does not answer.
    Unreachable,
}

/// How a session is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct SessionCondition {
    /// Whether it beats: it has a lease, or will have one.
    pub alive: bool,
    /// The newest configuration that it has acknowledged.
    pub acknowledged: u64,
    /// How uncertain it is of the time, in nanoseconds; `None` if it knows none.
    pub uncertainty_ns: Option<u64>,
    /// By how much its clock is faster than the master's, in parts per billion, as far as that is certain.
    pub skew_ppb: i64,
}

/// How a region's space is used.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Usage {
    /// Chunks of 64 KiB that nobody has.
    pub free_chunks: u64,
    /// Slabs by the bytes of their objects.
    pub slabs: BTreeMap<u64, u64>,
}

/// What one look at a node finds: its beat, and what the manager says.
type Glance = (u64, Announcement);

/// Looks at a pool, twice, a lease apart. `None` if there is none.
pub async fn inspect(
    worker: &Worker,
    store: &dyn ConfigStore,
    connect: &Rc<dyn Connect>,
) -> Result<Option<Inspection>, StoreError> {
    let stored = store.read(0).await?;
    let Some(bytes) = stored.config.as_deref() else { return Ok(None) };
    let config = Config::decode(bytes).map_err(StoreError::Foreign)?;
    let links = Links::careless(worker, connect);
    let lease = Duration::from_nanos(config.lease_ns);
    let first = look(worker, &links, &config, lease).await;
    worker.sleep(lease).await;
    let second = look(worker, &links, &config, lease).await;
    let nodes = config.nodes.iter().map(|node| {
        let condition = match (first.nodes.get(&node.id), second.nodes.get(&node.id)) {
            (_, Some(Err(()))) => Condition::Reborn,
            (Some(Ok((before, _))), Some(Ok((after, _)))) if before != after => Condition::Alive,
            (_, Some(Ok(_))) => Condition::Silent,
            (_, None) => Condition::Unreachable,
        };
        (node.id, condition)
    });
    let heard = |look: &Look| -> Vec<u64> {
        look.nodes.values().flatten().map(|(_, manager)| manager.beat).collect()
    };
    let counting = second.nodes.values().flatten().map(|(_, manager)| manager.counting).max();
    let sessions = config.sessions.iter().filter_map(|member| {
        let after = second.signs.get(&member.slot).filter(|s| s.client == member.client)?;
        let before = first.signs.get(&member.slot);
        let alive = before.is_some_and(|before| before.beat != after.beat);
        let condition = SessionCondition {
            alive,
            acknowledged: after.acknowledged,
            uncertainty_ns: Some(after.uncertainty).filter(|uncertainty| *uncertainty < u64::MAX),
            skew_ppb: after.drift_ppb,
        };
        Some((member.client, condition))
    });
    Ok(Some(Inspection {
        counting: counting.unwrap_or(0),
        managed: heard(&first) != heard(&second),
        nodes: nodes.collect(),
        sessions: sessions.collect(),
        space: usage(worker, &links, &config, lease).await,
        petitions: stored.petitions.len(),
        config,
    }))
}

struct Look {
    /// What was found on each node that answers; `Err` if it is in another life.
    nodes: BTreeMap<u16, Result<Glance, ()>>,
    signs: BTreeMap<u16, Signs>,
}

async fn look(worker: &Worker, links: &Links, config: &Config, lease: Duration) -> Look {
    // People wait for this: a slow node is not a dead one.
    let span = lease.max(Duration::from_millis(200));
    let mut found = Look { nodes: BTreeMap::new(), signs: BTreeMap::new() };
    for node in &config.nodes {
        if let Some(glance) = links.within(span, node, glance(worker, links, node)).await.flatten()
        {
            found.nodes.insert(node.id, glance);
        }
    }
    if let Some(home) = config.node(config.home) {
        let signs = links.within(span, home, signs(worker, links, home, config)).await;
        found.signs = signs.flatten().unwrap_or_default();
    }
    found
}

async fn usage(
    worker: &Worker,
    links: &Links,
    config: &Config,
    lease: Duration,
) -> BTreeMap<u16, Usage> {
    let span = lease.max(Duration::from_millis(200));
    let mut found = BTreeMap::new();
    for region in &config.regions {
        let Some(primary) = region.replicas.first() else { continue };
        let Some(node) = config.node(primary.node) else { continue };
        let reading = async {
            let queue = links.to(node).await?;
            let replicas = vec![(queue, primary.base)];
            let place = Place {
                region: RegionId(region.id),
                bytes: region.bytes,
                replicas,
                joining: Vec::new(),
            };
            place.usage(worker).await.ok()
        };
        if let Some(usage) = links.within(span, node, reading).await.flatten() {
            let (free_chunks, slabs) = usage;
            found.insert(region.id, Usage { free_chunks, slabs });
        }
    }
    found
}

async fn glance(worker: &Worker, links: &Links, node: &Node) -> Option<Result<Glance, ()>> {
    let queue = links.to(node).await?;
    let mut round = worker.round();
    let line = round.to(&queue).read(NODE, 24);
    let manager = round.to(&queue).read(MANAGER, Announcement::WORDS * 8);
    let done = round.ring().await.ok()?;
    if done[line][..2] != [MAGIC, node.incarnation] {
        return Some(Err(()));
    }
    // What is torn, or was never written, is no announcement.
    let heard = Announcement::from_words(&done[manager]).unwrap_or_default();
    Some(Ok((done[line][2], heard)))
}

async fn signs(
    worker: &Worker,
    links: &Links,
    home: &Node,
    config: &Config,
) -> Option<BTreeMap<u16, Signs>> {
    let queue = links.to(home).await?;
    let mut round = worker.round();
    let tickets: Vec<_> = config
        .sessions
        .iter()
        .map(|member| (member.slot, round.to(&queue).read(session(member.slot), Signs::WORDS * 8)))
        .collect();
    let done = round.ring().await.ok()?;
    let signs =
        tickets.into_iter().map(|(slot, line)| Some((slot, Signs::from_words(&done[line])?)));
    Some(signs.flatten().collect())
}
