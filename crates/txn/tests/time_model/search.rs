//! All states that can be reached, the shortest runs first.

use std::collections::HashSet;
use std::hash::Hash;
use std::rc::Rc;

/// Something that goes on step by step.
pub(crate) trait Model: Eq + Hash {
    /// All that can happen next.
    fn next(&self, each: &mut dyn FnMut(Self));

    /// What is wrong.
    fn wrong(&self) -> Option<String>;

    /// What has happened before this.
    fn step_from(&self, before: &Self) -> String;
}

pub(crate) struct Found {
    pub(crate) states: usize,
    /// What is wrong, and how it came to that.
    pub(crate) broken: Option<(String, Vec<String>)>,
}

pub(crate) fn search<M: Model>(start: M) -> Found {
    let start = Rc::new(start);
    let mut known = HashSet::from([Rc::clone(&start)]);
    let mut all = vec![(start, 0)];
    let mut at = 0;
    while at < all.len() {
        let state = Rc::clone(&all[at].0);
        if let Some(wrong) = state.wrong() {
            let (mut run, mut back) = (Vec::new(), at);
            while back > 0 {
                let (state, before) = &all[back];
                run.push(state.step_from(&all[*before].0));
                back = *before;
            }
            run.reverse();
            return Found { states: all.len(), broken: Some((wrong, run)) };
        }
        state.next(&mut |next| {
            let next = Rc::new(next);
            if known.insert(Rc::clone(&next)) {
                all.push((next, at));
            }
        });
        at += 1;
    }
    Found { states: all.len(), broken: None }
}
