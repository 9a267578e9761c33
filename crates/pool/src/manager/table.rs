//! The table of sessions at home: their signs are read, their grants written.

use std::rc::Rc;

use farside_fabric::probe;

use super::State;
use crate::config::Node;
use crate::control::{Signs, grant, session};
use crate::links::Links;

pub(super) async fn read_signs(state: Rc<State>) {
    let links = Links::new(&state.means.worker, &state.means.connect);
    while !state.retired.get() {
        let read = read_home(&state, &links).await.is_some();
        let since = state.table_since.get().unwrap_or_else(|| state.now());
        state.table_since.set(read.then_some(since));
        state.tick().await;
    }
}

async fn read_home(state: &State, links: &Links) -> Option<()> {
    let home = {
        let config = state.config.borrow();
        config.node(config.home)?.clone()
    };
    links.within(state.terms.answer(), &home, exchange(state, links, &home)).await.flatten()
}

async fn exchange(state: &State, links: &Links, home: &Node) -> Option<()> {
    let queue = links.to(home).await?;
    let slots = {
        let config = state.config.borrow();
        usize::from(config.sessions.iter().map(|session| session.slot).max()?) + 1
    };
    let grants = grants(state, slots);
    let mut round = state.means.worker.round();
    let mut bell = round.to(&queue);
    bell.write(grant(0), &grants);
    let table = bell.read(session(0), slots * Signs::STRIDE as usize);
    let done = round.ring().await.ok()?;
    let words = done[table].to_vec();
    drop(done);
    hear(state, &words);
    Some(())
}

fn grants(state: &State, slots: usize) -> Vec<u64> {
    let (config, sessions) = (state.config.borrow(), state.sessions.borrow());
    let mut grants = vec![0; slots];
    for session in &config.sessions {
        let record = sessions.get(&session.client);
        if let Some(place) = grants.get_mut(usize::from(session.slot)) {
            *place = record.map_or(0, |record| record.granted);
        }
    }
    grants
}

fn hear(state: &State, words: &[u64]) {
    let now = state.now();
    let config = state.config.borrow();
    {
        let mut sessions = state.sessions.borrow_mut();
        for member in &config.sessions {
            let at = usize::from(member.slot) * Signs::STRIDE as usize / 8;
            let Some(line) = words.get(at..at + Signs::WORDS) else { continue };
            let Some(signs) = Signs::from_words(line) else { continue };
            // The place may still have the signs of whoever had it before.
            let Some(record) = sessions.get_mut(&member.client) else { continue };
            if signs.client != member.client {
                continue;
            }
            record.heard(signs.beat, now);
            record.acknowledged = record.acknowledged.max(signs.acknowledged);
            record.latest = record.latest.max(signs.latest);
            record.drift_ppb = signs.drift_ppb;
            if let Some(sent) = state.sent_at(signs.echo) {
                record.echoed_at = record.echoed_at.max(sent);
            }
        }
    }
    let evidence = state.evidence();
    let late = state.is_late();
    for (client, record) in state.sessions.borrow_mut().iter_mut() {
        // Who does not take notice of a change gets no lease any more, and is put out.
        if late && record.acknowledged < config.epoch {
            probe!("a session beats, but does not acknowledge");
            continue;
        }
        if state.leaving.borrow().contains(client) {
            probe!("a session that is being put out beats again");
            continue;
        }
        record.grant(evidence, &state.terms);
    }
}
