//! The clock of the pool: set when a new home has it, and taken from those whose clocks are not good enough
//! (`farmv2.txt` §4.1, §4.3).

use farside_fabric::probe;

use super::State;
use super::change::swap;
use crate::config::Config;
use crate::links::Links;
use crate::time;

/// The first time of a pool: 0 is no time.
const FIRST: u64 = 1 << 30;

/// Lets the clock of the home go on from the latest time that anybody has given out, once nobody gives out times of
/// another clock any more.
pub(super) async fn set(state: &State, links: &Links) {
    let config = state.config.borrow().clone();
    if config.master.is_some()
        || state.counting.get() < config.epoch
        || state.revision.get() == 0
        || state.retired.get()
    {
        return;
    }
    let Some(home) = config.node(config.home) else { return };
    let Some(latest) = state.latest_time(&config) else {
        probe!("nobody is left who knows the time");
        return;
    };
    let asking = async { time::ask(&state.means.worker, &links.to(home).await?, 0).await };
    let asked = links.within(state.terms.answer(), home, asking).await.flatten();
    let Some(asked) = asked.filter(|_| state.config.borrow().epoch == config.epoch) else { return };
    let mut next = config.next();
    next.fenced.clear();
    next.set_clock(latest + 1, asked.master);
    probe!("a new master goes on with the time");
    swap(state, next).await;
}

impl State {
    /// The latest time that anybody may have given out, when a configuration without a clock counts: those who are there
    /// have told it with their acknowledgements, and the leases of those who are not have ended, which is reckoned with here.
    fn latest_time(&self, config: &Config) -> Option<u64> {
        let now = self.now();
        let own = self.view.time().reckon(now.0);
        let ended = self.leases_end.get().max(self.safe_after.get());
        let sessions = self.sessions.borrow();
        // Or by others, since that time.
        let reckoned = |record: &super::Record| record.latest > 0 && record.echoed_at > ended;
        if config.timed > 0 && own.is_none() && !sessions.values().any(reckoned) {
            return None;
        }
        let told = sessions.values().map(|record| record.latest).max().unwrap_or(0);
        Some(told.max(own.unwrap_or(0)).max(config.timed).max(FIRST))
    }

    /// Puts out sessions whose clocks drift too much; or, if most of them say so, it is the master's clock that does.
    pub(super) fn judge_clocks(&self, next: &mut Config) -> bool {
        let sessions = self.sessions.borrow();
        let drifting: Vec<u64> = sessions
            .iter()
            .filter(|(_, record)| time::is_alarming(record.drift_ppb))
            .map(|(client, _)| *client)
            .collect();
        if drifting.is_empty() || next.master.is_none() {
            self.drift_since.set(None);
            return false;
        }
        // Not all notice at the same time; and whoever is beyond the bounds does nothing any more.
        let since = self.drift_since.get().unwrap_or(self.now());
        self.drift_since.set(Some(since));
        if self.now() - since < self.terms.hearing() {
            return false;
        }
        if drifting.len() > 1 && 2 * drifting.len() > sessions.len() {
            let (old, mut nodes) = (next.home, next.nodes.iter());
            let Some(new) = nodes.find(|node| node.id != old && !node.draining) else {
                return false;
            };
            probe!("the master's clock drifts");
            next.move_home(new.id);
            next.drain_node(old);
            return true;
        }
        let mut changed = false;
        for client in drifting {
            if client == self.means.client.0 {
                // Others will do better.
                probe!("a manager whose clock drifts resigns");
                self.retired.set(true);
                return false;
            }
            if next.session(client).is_some() {
                probe!("a session whose clock drifts is put out");
                next.remove_session(client);
                changed = true;
            }
        }
        changed
    }
}
