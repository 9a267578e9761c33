//! When the manager is silent, a session takes over.

use farside_fabric::{Time, probe};

use super::Member;
use crate::config::Config;
use crate::manager::{Beginning, Silent};
use crate::store::StoreError;
use crate::time;

impl Member {
    /// Whether nobody seems to manage any more, as far as this session sees.
    pub(super) fn is_time_to_take_over(&self, config: &Config, reached: &[u16]) -> bool {
        // A manager that hears nobody waits for others to do better.
        if self.manages() {
            return false;
        }
        let now = self.means.worker.now();
        let since = self.view.valid_until().max(self.hopeful_until.get());
        let lapsed_for = now - since.min(now);
        // One whose clock is not good enough is about to be put out; unless all say so, because it is the master's that is not.
        let alarming = time::is_alarming(self.view.time().drift_ppb());
        if alarming && lapsed_for < 4 * self.terms.hearing() {
            return false;
        }
        // Who sees less of the pool waits longer: those who see more go first.
        let unseen = config.nodes.len() - reached.len();
        let ticks =
            1 + 8 * unseen.saturating_sub(1).min(4) as u64 + self.means.worker.random_below(3);
        let silent = |id: &u16| {
            let silence = self.silence.borrow();
            silence.get(id).is_some_and(|(_, since)| now - *since >= 5 * self.terms.tick())
        };
        if self.never_had_a_lease() && lapsed_for < self.terms.stranger() {
            return false;
        }
        if reached.is_empty() {
            // All nodes are gone, or out of reach. A pool that goes on without us would have put us out
            // long ago, which the store would tell.
            return lapsed_for > 16 * self.terms.lease;
        }
        let patient = lapsed_for >= self.terms.tick() * ticks as u32;
        patient && reached.iter().all(silent)
    }

    /// The manager is silent: this session becomes the next, if the store agrees. It does not echo
    /// meanwhile.
    pub(super) async fn take_over(&self, config: &Config, home: u16) -> Result<(), String> {
        let Some(revision) = self.look_at_store(config).await? else { return Ok(()) };
        let mut next = config.next();
        next.manager = self.means.client.0;
        next.move_home(home);
        let start = self.means.worker.now();
        match self.means.store.swap(revision, &next.encode()).await {
            Ok(true) => {}
            Ok(false) => {
                probe!("another session took over first");
                return Ok(());
            }
            // It may have been done: whoever reads the store next finds out.
            Err(_) => {
                probe!("a takeover with unknown outcome");
                return self.resolve(next, config, revision).await;
            }
        }
        self.begin_office(next, config, (start, revision));
        Ok(())
    }

    /// A swap whose answer was lost: did it happen?
    async fn resolve(&self, wanted: Config, old: &Config, revision: u64) -> Result<(), String> {
        loop {
            let start = self.means.worker.now();
            match self.means.store.read(0).await {
                Err(StoreError::Unreachable(_)) => self.means.worker.sleep(self.terms.tick()).await,
                Err(StoreError::Foreign(why)) => return Err(why),
                Ok(stored) => {
                    let newest = Config::decode(stored.config.as_deref().unwrap_or_default())?;
                    // By its number: somebody may have contested it since.
                    if (newest.epoch, newest.manager) == (wanted.epoch, wanted.manager) {
                        self.begin_office(wanted, old, (start, revision));
                    }
                    return Ok(());
                }
            }
        }
    }

    /// The store has a configuration of this session's as the manager, confirmed after some time, which replaced one of that
    /// revision.
    fn begin_office(&self, config: Config, old: &Config, (confirmed, revision): (Time, u64)) {
        probe!("a session took over from a silent manager");
        let now = self.means.worker.now();
        let contested = self.contest.since(revision);
        // The old manager's last evidence: the store, or a beat that all have echoed, also this session.
        let evidence = contested.map_or(now, |since| since.max(self.echo_read_at.get()));
        let mut safe_after = evidence + self.terms.takeover();
        if self.never_had_a_lease() {
            // The manager may not know of this session, whose echo it does not miss.
            safe_after = now + self.terms.takeover() + self.terms.stranger();
        }
        let heard = self.silence.borrow().values().map(|(_, since)| *since).max();
        // One that cannot be reached is gone; one that is late may only be slow.
        let lost_home = old.home != config.home && self.links.cannot_reach(old.home);
        let silent = lost_home.then(|| Silent {
            manager: (old.manager, heard.unwrap_or(now)),
            home: (old.home, self.home_heard_at.get()),
        });
        self.learn(config.clone());
        self.become_manager(config, Beginning { confirmed, safe_after, silent });
    }
}
