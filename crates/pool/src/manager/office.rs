//! The manager and the store: is this still the manager, and what is asked of it?

use std::rc::Rc;

use farside_fabric::probe;

use super::State;
use crate::config::Config;
use crate::member::LeftOut;
use crate::petition::Petition;

pub(super) async fn hold(state: Rc<State>) {
    while !state.retired.get() {
        confirm(&state).await;
        let until = state.now() + state.terms.lease;
        // Half as old as it may be, and no sooner: a store that is asked all the time has no time for others.
        state.means.worker.sleep(state.terms.age() / 2).await;
        while needs_no_store(&state) && state.now() < until {
            state.tick().await;
        }
    }
}

/// Where the echoes of all sessions are evidence enough, and nothing was changed, the store is asked for petitions only.
fn needs_no_store(state: &State) -> bool {
    let now = state.now();
    let enough = now - state.evidence().min(now) < 2 * state.terms.age();
    enough && state.is_calm() && state.revision.get() != 0 && !state.retired.get()
}

/// Reads the store; ends the office if it names another manager.
pub(super) async fn confirm(state: &State) {
    let start = state.now();
    let known = state.revision.get();
    let Ok(stored) = state.means.store.read(known).await else {
        probe!("the store does not answer the manager");
        return;
    };
    if known == 0 || stored.revision != known {
        let newest = stored.config.as_deref().map(Config::decode);
        let Some(Ok(mut newest)) = newest else { return };
        let epoch = state.config.borrow().epoch;
        if newest.manager != state.means.client.0 {
            probe!("a manager finds another in its office");
            state.retired.set(true);
            return;
        }
        let contested = std::mem::take(&mut newest.contested);
        if contested && state.means.left_out != Some(LeftOut::Contest) {
            return stay(state, stored.revision, &newest).await;
        }
        if newest.epoch > epoch {
            // A swap of ours whose answer was lost.
            probe!("a change with unknown outcome was made");
            state.adopt(newest);
        } else if newest.epoch < epoch {
            // An answer from before our latest swap.
            return;
        }
        state.revision.set(stored.revision);
    } else if state.revision.get() != known {
        // The same: there was a swap meanwhile.
        return;
    }
    state.confirmed.set(state.confirmed.get().max(start));
    let heard = stored.petitions.iter();
    *state.petitions.borrow_mut() =
        heard.filter_map(|(key, bytes)| Some((key.clone(), Petition::decode(bytes)?))).collect();
}

/// Somebody misses this manager, which is there: a swap takes the mark away, and is evidence of the office. Nothing else is
/// learned from a configuration that is contested.
async fn stay(state: &State, revision: u64, newest: &Config) {
    probe!("a manager whose office is contested stays");
    let start = state.now();
    // Whatever else is new is seen by the next look.
    state.revision.set(0);
    if state.means.store.swap(revision, &newest.encode()).await == Ok(true) {
        state.confirmed.set(state.confirmed.get().max(start));
    }
}
