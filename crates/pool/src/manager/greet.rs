//! Nodes that ask to be members are taken in only if the manager can reach them.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use farside_fabric::{Time, probe};

use super::State;
use super::change::is_done;
use crate::config::Node;
use crate::links::{Links, is_member};
use crate::petition::{Newcomer, Petition};

/// A task of its own: one that does not answer delays nobody but other newcomers.
pub(super) async fn greet(state: Rc<State>) {
    // Petitions that could not be answered, and since when.
    let mut missed: BTreeMap<String, Time> = BTreeMap::new();
    // Connecting may take longer than one waits: it goes on meanwhile.
    let mut doors: BTreeMap<u64, Links> = BTreeMap::new();
    while !state.retired.get() {
        let asking = asking(&state);
        missed.retain(|key, _| asking.iter().any(|(known, _)| known == key));
        doors.retain(|life, _| asking.iter().any(|(_, newcomer)| newcomer.incarnation == *life));
        let mut reachable = BTreeSet::new();
        for (key, newcomer) in &asking {
            let new = || Links::new(&state.means.worker, &state.means.connect);
            let door = doors.entry(newcomer.incarnation).or_insert_with(new);
            if answers(&state, door, newcomer).await {
                reachable.insert(newcomer.incarnation);
                missed.remove(key);
                continue;
            }
            probe!("a node asks that does not answer");
            let (now, patience) = (state.now(), 16 * state.terms.lease);
            let since = *missed.entry(key.clone()).or_insert(now);
            if now - since.min(now) > patience {
                // If it is alive, it asks again.
                probe!("a petition of a node that never answered is dismissed");
                state.hopeless.borrow_mut().insert(key.clone());
            }
        }
        *state.reachable.borrow_mut() = reachable;
        match asking.is_empty() {
            true => state.tick().await,
            false => state.means.worker.sleep(state.terms.lease / 2).await,
        }
    }
}

fn asking(state: &State) -> Vec<(String, Newcomer)> {
    let (petitions, config) = (state.petitions.borrow(), state.config.borrow());
    let open = petitions.iter().filter(|(_, petition)| !is_done(&config, petition));
    let nodes = open.filter_map(|(key, petition)| match petition {
        Petition::Join(newcomer) => Some((key.clone(), newcomer.clone())),
        _ => None,
    });
    nodes.collect()
}

/// Whether a node answers in the life that it says it is in.
async fn answers(state: &State, links: &Links, newcomer: &Newcomer) -> bool {
    let Newcomer { address, incarnation, bytes, versions } = newcomer.clone();
    let node = Node { id: u16::MAX, incarnation, address, bytes, draining: false, versions };
    // The door may be open since long: it has to answer now.
    let asking = async {
        is_member(&state.means.worker, &links.to(&node).await?).await.ok().filter(|is| *is)
    };
    links.within(state.terms.answer(), &node, asking).await.flatten().is_some()
}
