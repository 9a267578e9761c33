//! Watching the nodes: each gets announcements and grants, and its beats are read.

use std::collections::BTreeMap;
use std::rc::Rc;

use farside_fabric::runtime::Task;
use farside_fabric::{Time, probe};

use super::State;
use crate::config::Node;
use crate::control::{Announcement, MAGIC, MANAGER, NODE, config as config_at, config_words};
use crate::links::Links;

/// Keeps a task for every member. One node that hangs does not delay the others.
pub(super) async fn watch_all(state: Rc<State>) {
    let mut tasks: BTreeMap<u16, (Task<()>, Time)> = BTreeMap::new();
    while !state.retired.get() {
        {
            let (config, now) = (state.config.borrow(), state.now());
            for node in &config.nodes {
                let start = || state.means.worker.spawn(watch(Rc::clone(&state), node.clone()));
                tasks.entry(node.id).or_insert_with(|| (start(), now)).1 = now;
            }
            // One that was put out may still be the home of sessions that do not know it yet.
            tasks.retain(|_, (_, member)| now - *member < 2 * state.terms.lease);
        }
        state.tick().await;
    }
}

async fn watch(state: Rc<State>, node: Node) {
    let links = Links::careless(&state.means.worker, &state.means.connect);
    let mut written = 0;
    while !state.retired.get() {
        let exchange = exchange(&state, &links, &node, &mut written);
        links.within(state.terms.answer(), &node, exchange).await;
        state.tick().await;
    }
}

/// Writes what the node and its readers need to know, and reads its beat. `written` is the epoch of the
/// configuration that it has.
async fn exchange(state: &State, links: &Links, node: &Node, written: &mut u64) -> Option<()> {
    let queue = links.to(node).await?;
    let config = (state.config.borrow().epoch != *written).then(|| state.config.borrow().clone());
    let grant = state.nodes.borrow().get(&node.id).map_or(0, |record| record.granted);
    let announcement = Announcement {
        beat: state.next_beat(),
        announced: state.config.borrow().epoch,
        counting: state.counting.get(),
        grant,
        manager: state.means.client.0,
    };
    let mut round = state.means.worker.round();
    let mut bell = round.to(&queue);
    if let Some(config) = &config {
        let words = config_words(config);
        // Ordered before the announcement, which makes members read it.
        bell.write(config_at(config.epoch), &words);
    }
    bell.write(MANAGER, &announcement.words());
    let line = bell.read(NODE, 24);
    let done = round.ring().await.ok()?;
    let (magic, incarnation, beat) = (done[line][0], done[line][1], done[line][2]);
    drop(done);
    *written = announcement.announced;
    let now = state.now();
    let evidence = state.evidence();
    let mut nodes = state.nodes.borrow_mut();
    let record = nodes.get_mut(&node.id)?;
    if magic != MAGIC || incarnation != node.incarnation {
        probe!("a node came back before its lease had ended");
        record.reborn = true;
        return None;
    }
    record.heard(beat, now);
    record.grant(evidence, &state.terms);
    Some(())
}
