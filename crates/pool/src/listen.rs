//! What can be learned at a node from outside: whether somebody manages, what is announced, and configurations.

use std::collections::BTreeMap;

use farside_fabric::{Queue, Worker};

use crate::config::{Config, Node};
use crate::control::{
    Announcement, CONFIG_HEAD, MANAGER, config, config_body_words, config_from_words,
};
use crate::links::Links;
use crate::member::Means;
use crate::terms::Terms;

/// Whether somebody manages a pool: then his beats change at some node within a lease.
pub(crate) async fn is_managed(means: &Means, terms: &Terms, config: &Config) -> bool {
    let links = Links::new(&means.worker, &means.connect);
    let mut before: BTreeMap<u16, u64> = BTreeMap::new();
    for _ in 0..2 {
        for node in &config.nodes {
            let listening = listen(&means.worker, &links, node);
            let heard = links.within(terms.answer(), node, listening).await.flatten();
            if let Some(heard) = heard
                && before.insert(node.id, heard.beat).is_some_and(|known| known != heard.beat)
            {
                return true;
            }
        }
        means.worker.sleep(terms.lease).await;
    }
    false
}

/// What a manager, or one of old, has announced at a node.
pub(crate) async fn listen(worker: &Worker, links: &Links, node: &Node) -> Option<Announcement> {
    let queue = links.to(node).await?;
    let mut round = worker.round();
    let manager = round.to(&queue).read(MANAGER, Announcement::WORDS * 8);
    let done = round.ring().await.ok()?;
    Announcement::from_words(&done[manager])
}

/// Reads the configuration of an epoch from a node; `None` if it is torn, not there, or not whole yet.
pub(crate) async fn read_config(worker: &Worker, queue: &Queue, epoch: u64) -> Option<Config> {
    let at = config(epoch);
    let mut round = worker.round();
    let head = round.to(queue).read(at, CONFIG_HEAD * 8);
    let done = round.ring().await.ok()?;
    let body = config_body_words(&done[head], epoch)?;
    drop(done);
    let mut round = worker.round();
    let words = round.to(queue).read(at, (CONFIG_HEAD + body) * 8);
    let done = round.ring().await.ok()?;
    config_from_words(&done[words])
}
