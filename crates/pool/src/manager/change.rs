//! Changes of the configuration: swapped in the store, announced, acknowledged or fenced, and then
//! they count (`farmv2.txt` §4.3).

use std::rc::Rc;

use farside_fabric::{ClientId, Time, probe};

use super::record::Record;
use super::{State, clock};
use crate::config::{Config, Node, Session};
use crate::links::Links;
use crate::member::LeftOut;
use crate::petition::Petition;
use crate::time;

pub(super) async fn decide(state: Rc<State>) {
    let links = Links::new(&state.means.worker, &state.means.connect);
    while !state.retired.get() {
        if state.may_change()
            && let Some(next) = state.next_config()
        {
            swap(&state, next).await;
        }
        dismiss_petitions(&state).await;
        fence(&state, &links).await;
        state.count();
        clock::set(&state, &links).await;
        state.tick().await;
    }
}

/// Notices when this manager did not run for a while.
pub(super) async fn feel_pulse(state: Rc<State>) {
    while !state.retired.get() {
        let before = state.now();
        state.means.worker.next_tick(state.terms.calm_tick()).await;
        if state.now() - before > state.terms.lease / 4 {
            state.look_again();
        }
    }
}

/// Makes a change, if the store still has what it is made from.
pub(super) async fn swap(state: &State, next: Config) {
    if state.revision.get() == 0 {
        return;
    }
    let start = state.now();
    // Who is about to be put out gets no lease any more that would have to be waited for.
    let old = state.config.borrow().sessions.clone();
    let leaving = old.iter().filter(|session| next.session(session.client).is_none());
    *state.leaving.borrow_mut() = leaving.map(|session| session.client).collect();
    let swapped = state.means.store.swap(state.revision.get(), &next.encode()).await;
    // However that went, the next look at the store tells; until then there is no other change.
    state.revision.set(0);
    match swapped {
        Ok(true) => {
            state.confirmed.set(state.confirmed.get().max(start));
            state.adopt(next);
        }
        Ok(false) => probe!("a change was too late"),
        Err(_) => probe!("a change without an answer"),
    }
    super::office::confirm(state).await;
    state.leaving.borrow_mut().clear();
}

async fn dismiss_petitions(state: &State) {
    let heard: Vec<String> = {
        let config = state.config.borrow();
        let petitions = state.petitions.borrow();
        let hopeless = std::mem::take(&mut *state.hopeless.borrow_mut());
        let over = |(key, petition): &&(String, Petition)| {
            is_done(&config, petition) || hopeless.contains(key)
        };
        petitions.iter().filter(over).map(|(key, _)| key.clone()).collect()
    };
    for key in heard {
        let _ = state.means.store.dismiss(&key).await;
        state.petitions.borrow_mut().retain(|(known, _)| *known != key);
    }
}

pub(super) fn is_done(config: &Config, petition: &Petition) -> bool {
    match petition {
        // A process that was put out comes back under a new id.
        Petition::Session { client } => {
            let is_it = |session: &Session| session.client == *client;
            config.sessions.iter().chain(&config.fenced).any(is_it)
        }
        Petition::Join(newcomer) => {
            let is_it = |node: &Node| node.incarnation == newcomer.incarnation;
            config.is_past(newcomer.incarnation) || config.nodes.iter().any(is_it)
        }
        Petition::Drain { node } => config.node(*node).is_none_or(|node| node.draining),
        Petition::Region { number, .. } => config.regions.len() > usize::from(*number),
        Petition::Whole { region, replica } => {
            let region = config.region(crate::RegionId(*region));
            !region.is_some_and(|region| region.joining.contains(replica))
        }
    }
}

/// Fences who was put out, at every member.
async fn fence(state: &State, links: &Links) {
    if state.config.borrow().fenced.is_empty()
        || state.counting.get() >= state.config.borrow().epoch
    {
        return;
    }
    let config = state.config.borrow().clone();
    for node in &config.nodes {
        for client in &config.fenced {
            let client = client.client;
            if state.fences.borrow().contains(&(node.id, client)) || state.retired.get() {
                continue;
            }
            let fenced = async { links.to(node).await?.fence(ClientId(client)).await.ok() };
            let fenced = links.within(state.terms.answer(), node, fenced).await;
            if fenced.flatten().is_some() {
                probe!("a process that was put out is fenced");
                state.fences.borrow_mut().insert((node.id, client));
            } else {
                break;
            }
        }
    }
}

impl State {
    /// A configuration that is in the store now is the newest.
    pub(super) fn adopt(&self, config: Config) {
        // Who is put out may have got a lease, if the store was slow to tell.
        let sessions = self.sessions.borrow();
        let out = sessions.iter().filter(|(client, _)| config.session(**client).is_none());
        let leases = out.map(|(_, record)| record.lease_end(&self.terms)).max();
        drop(sessions);
        self.leases_end.set(self.leases_end.get().max(leases.unwrap_or(Time(0))));
        *self.config.borrow_mut() = config;
        self.announced_at.set(self.now());
        self.meet_members();
    }

    /// The newest configuration counts, once everybody has acknowledged it or was fenced, and no lease is
    /// left of an older manager, or of somebody who was put out.
    fn count(&self) {
        let config = self.config.borrow();
        let leases_end = self.leases_end.get().max(self.safe_after.get());
        if self.counting.get() >= config.epoch || self.now() < leases_end {
            return;
        }
        let sessions = self.sessions.borrow();
        let acknowledged = |client: &u64| {
            sessions.get(client).is_some_and(|record| record.acknowledged >= config.epoch)
        };
        let fences = self.fences.borrow();
        let fenced = |gone: &Session| {
            config.nodes.iter().all(|node| fences.contains(&(node.id, gone.client)))
        };
        let all = config.sessions.iter().all(|session| acknowledged(&session.client));
        if all && config.fenced.iter().all(fenced) {
            self.counting.set(config.epoch);
        }
    }

    /// This manager did not run for a while: that nobody was heard meanwhile says nothing.
    fn look_again(&self) {
        probe!("a manager that was away looks again");
        let now = self.now();
        self.nodes.borrow_mut().values_mut().for_each(|record| record.look_again(now));
        self.sessions.borrow_mut().values_mut().for_each(|record| record.look_again(now));
    }

    /// Whether there may be a reason for a change: a quick look before a thorough one.
    fn may_change(&self) -> bool {
        let (now, terms) = (self.now(), &self.terms);
        let ill = |record: &Record| record.reborn || record.is_silent(now, terms);
        let drifts = |record: &Record| time::is_alarming(record.drift_ppb);
        let deaf = |record: &Record| record.has_lapsed(now, terms) || drifts(record);
        self.nodes.borrow().values().any(ill)
            || self.sessions.borrow().values().any(|record| ill(record) || deaf(record))
            || !self.petitions.borrow().is_empty()
            || self.config.borrow().nodes.iter().any(|node| node.draining)
            || self.config.borrow().lacks_copies(crate::CONTROL_BYTES)
    }

    /// The next configuration, if it is time for one.
    fn next_config(&self) -> Option<Config> {
        let config = self.config.borrow();
        let mut next = config.next();
        // What was fenced before the newest configuration counted needs no more fences.
        if self.counting.get() >= config.epoch {
            next.fenced.clear();
        }
        let mut changed = self.put_out(&mut next) | self.judge_clocks(&mut next);
        // A newcomer that is not up to it must not delay what those who are there wait for; but where
        // nothing goes on without newcomers, they are welcome.
        if self.counting.get() >= config.epoch || self.is_late() {
            changed |= self.hear_petitions(&mut next);
            if next.begin_copies(crate::CONTROL_BYTES) {
                probe!("a copy of a region is begun");
                changed = true;
            }
        }
        for node in &config.nodes {
            // One after the other: each may be the last copy once another is gone.
            if next.is_drained(node.id, crate::CONTROL_BYTES) {
                probe!("a node has drained");
                next.remove_node(node.id);
                changed = true;
            }
        }
        if next.node(next.home).is_none() {
            let nodes = self.nodes.borrow();
            let alive = |id: &u16| {
                nodes.get(id).is_some_and(|record| !record.is_silent(self.now(), &self.terms))
            };
            let mut ids = next.nodes.iter().map(|node| node.id);
            let home = ids.clone().find(alive).or_else(|| ids.next())?;
            next.move_home(home);
        }
        changed.then_some(next)
    }

    /// Removes who has lapsed. In the first time of an office also who is silent, and has no lease of this manager: nothing
    /// counts before those of an older one have ended.
    fn put_out(&self, next: &mut Config) -> bool {
        let (now, terms) = (self.now(), &self.terms);
        let new = now < self.safe_after.get().max(self.began + terms.ended());
        let mut changed = false;
        let nodes = self.nodes.borrow();
        let is_lost = |record: &Record| {
            let silent = new && record.granted == 0 && record.is_silent(now, terms);
            record.reborn || silent || record.is_dead(now, terms)
        };
        let mut lost: Vec<u16> =
            nodes.iter().filter(|(_, record)| is_lost(record)).map(|(id, _)| *id).collect();
        // Whoever has been silent for longest is the least likely to come back.
        lost.sort_by_key(|id| nodes[id].forsaken_since());
        // Who sees the smaller part of the pool may be the one that is cut off: those who see the larger
        // part have time to take over first. Silent ones count, too: those that are not quite dead yet
        // would follow one by one.
        let heard = nodes.values().filter(|record| !record.is_silent(now, terms) && !record.reborn);
        let minority = 2 * heard.count() < nodes.len();
        if minority && !lost.iter().all(|id| nodes[id].is_long_dead(now, terms)) {
            probe!("a manager that sees the smaller part hesitates");
            return false;
        }
        for id in &lost {
            if !nodes[id].reborn
                && next.has_last_copy(*id)
                && self.means.left_out != Some(LeftOut::LastCopy)
            {
                // Silence is no proof: it may only be slow, and what it has is nowhere else.
                probe!("a silent node with a last copy is waited for");
            } else if next.nodes.len() > 1 {
                probe!("a node is put out");
                next.remove_node(*id);
                changed = true;
            }
        }
        let deaf_to_all =
            !self.has_heard_sessions(if new { self.welcome() } else { terms.ended() });
        for (client, record) in self.sessions.borrow().iter() {
            // Of the manager before this one it is known for how long it is silent; of others not, if the table is new.
            if deaf_to_all && self.deposed != Some(*client) {
                continue;
            }
            let silent = new && record.granted == 0 && record.is_missing(now, self.welcome());
            let mine = *client == self.means.client.0;
            let deaf = self.is_late() && record.acknowledged < next.epoch - 1;
            let deaf = deaf && record.has_lapsed(now, terms);
            if (silent || deaf || record.is_dead(now, terms)) && !mine {
                probe!("a session is put out");
                next.remove_session(*client);
                changed = true;
            }
        }
        changed
    }

    /// Whether everybody has had time to take notice of the newest configuration.
    pub(super) fn is_late(&self) -> bool {
        let now = self.now();
        now - self.announced_at.get().min(now) > 2 * self.terms.lease
    }

    /// Whether the table could be read for so long: before that, silence means nothing.
    fn has_heard_sessions(&self, span: std::time::Duration) -> bool {
        let now = self.now();
        self.table_since.get().is_some_and(|since| now - since.min(now) > span)
    }

    /// Whether copies that are whole are taken in now. Every change makes all pause for a moment: they come in together, once no
    /// others are under way, or when some have waited for long.
    fn takes_in_copies(&self, next: &Config) -> bool {
        let petitions = self.petitions.borrow();
        let is_whole = |petition: &Petition| matches!(petition, Petition::Whole { .. });
        let whole = petitions.iter().filter(|(_, it)| is_whole(it) && !is_done(next, it)).count();
        let now = self.now();
        let since = self.whole_since.get().filter(|_| whole > 0).unwrap_or(now);
        self.whole_since.set((whole > 0).then_some(since));
        let under_way: usize = next.regions.iter().map(|region| region.joining.len()).sum();
        whole >= under_way || now - since > 16 * self.terms.lease
    }

    fn hear_petitions(&self, next: &mut Config) -> bool {
        let mut changed = false;
        let takes_in_copies = self.takes_in_copies(next);
        for (_, petition) in self.petitions.borrow().iter() {
            if is_done(next, petition) {
                continue;
            }
            changed |= match petition {
                Petition::Session { client } => {
                    probe!("a session joins");
                    next.add_session(*client).is_some()
                }
                Petition::Join(newcomer) => {
                    // Its earlier life, if it is still a member, must be put out first.
                    let address = &newcomer.address;
                    let free = next.nodes.iter().all(|node| node.address != *address)
                        && next.has_room_for(address)
                        && self.reachable.borrow().contains(&newcomer.incarnation);
                    if free {
                        probe!("a node joins");
                        next.add_node(newcomer);
                    }
                    free
                }
                Petition::Drain { node } => {
                    probe!("a node begins to drain");
                    next.drain_node(*node);
                    true
                }
                Petition::Whole { .. } if !takes_in_copies => false,
                Petition::Whole { region, replica } => {
                    probe!("a copy of a region is whole");
                    next.finish_copy(crate::RegionId(*region), *replica);
                    true
                }
                Petition::Region { bytes, copies, .. } => {
                    next.add_region(*bytes, *copies, crate::CONTROL_BYTES).is_some()
                }
            };
        }
        changed
    }
}
