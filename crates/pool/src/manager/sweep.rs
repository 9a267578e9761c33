//! What the dead owned becomes nobody's, for any heap to adopt: after each change that counts in which a
//! session went, or a region got another primary.

use std::rc::Rc;

use farside_fabric::probe;

use super::State;
use crate::RegionId;
use crate::alloc::Place;
use crate::config::{Config, Region};
use crate::links::Links;

pub(super) async fn sweep(state: Rc<State>) {
    let links = Links::new(&state.means.worker, &state.means.connect);
    let mut swept: Option<Config> = None;
    while !state.retired.get() {
        let due = {
            let config = state.config.borrow();
            let counts = state.counting.get() == config.epoch;
            counts && swept.as_ref().is_none_or(|swept| is_dirty(swept, &config))
        };
        if due {
            let config = state.config.borrow().clone();
            links.keep(&config.nodes);
            let mut all = true;
            for region in &config.regions {
                all &= sweep_region(&state, &links, &config, region).await.is_some();
            }
            // A region that could not be reached is tried again.
            swept = if all { Some(config) } else { swept };
        }
        state.tick().await;
    }
}

/// Whether something may have been left behind since.
fn is_dirty(swept: &Config, config: &Config) -> bool {
    let gone = |config: &Config| config.next_serial - config.sessions.len() as u64;
    gone(swept) != gone(config) || swept.regions != config.regions
}

async fn sweep_region(
    state: &State,
    links: &Links,
    config: &Config,
    region: &Region,
) -> Option<()> {
    // One that has lost all its copies has nothing to sweep.
    let Some(primary) = region.replicas.first() else { return Some(()) };
    let node = config.node(primary.node)?;
    let sweeping = async {
        let replicas = vec![(links.to(node).await?, primary.base)];
        let place = Place {
            region: RegionId(region.id),
            bytes: region.bytes,
            replicas,
            joining: Vec::new(),
        };
        let is_dead = |owner: u64| config.is_dead_owner(owner);
        place.disown(&state.means.worker, &is_dead).await.ok()
    };
    let (slabs, leftovers) = links.within(4 * state.terms.lease, node, sweeping).await.flatten()?;
    if slabs + leftovers > 0 {
        probe!("what a dead session owned is nobody's now");
    }
    Some(())
}
