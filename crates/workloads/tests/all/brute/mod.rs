//! Small histories, judged by trying all orders.

use farside_fabric::runtime::Random;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    Committed,
    Aborted,
    Unknown,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Op {
    Read(u8, Vec<u8>),
    Append(u8, u8),
    ReadRegister(u8, Option<u8>),
    Write(u8, u8),
}

#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    pub(crate) begin: u64,
    pub(crate) end: u64,
    pub(crate) outcome: Outcome,
    pub(crate) ops: Vec<Op>,
}

pub(crate) type History = Vec<Attempt>;

/// As a file.
pub(crate) fn lines(history: &History) -> String {
    let mut text = String::new();
    for (id, attempt) in history.iter().enumerate() {
        let outcome = format!("{:?}", attempt.outcome).to_lowercase();
        let ops: Vec<String> = attempt
            .ops
            .iter()
            .map(|op| match op {
                Op::Read(key, list) => format!(r#"{{"f":"r","k":"{key}","v":{list:?}}}"#),
                Op::Append(key, element) => {
                    format!(r#"{{"f":"append","k":"{key}","v":{element}}}"#)
                }
                Op::ReadRegister(key, None) => format!(r#"{{"f":"r","k":"{key}","v":null}}"#),
                Op::ReadRegister(key, Some(v)) => format!(r#"{{"f":"r","k":"{key}","v":{v}}}"#),
                Op::Write(key, v) => format!(r#"{{"f":"w","k":"{key}","v":{v}}}"#),
            })
            .collect();
        text += &format!(
            r#"{{"id":{id},"proc":{id},"begin":{},"end":{},"outcome":"{outcome}","ops":[{}]}}"#,
            attempt.begin,
            attempt.end,
            ops.join(",")
        );
        text += "\n";
    }
    text
}

/// Up to four keys: lists, and registers as lists of at most one.
type State = [Vec<u8>; 4];

/// Whether an attempt may read what it has read from this state; then the state after it.
fn apply(attempt: &Attempt, state: &State) -> Option<State> {
    let mut state = state.clone();
    for op in &attempt.ops {
        match op {
            Op::Read(key, list) if state[*key as usize] != *list => return None,
            Op::ReadRegister(key, value) if state[*key as usize].first() != value.as_ref() => {
                return None;
            }
            Op::Append(key, element) => state[*key as usize].push(*element),
            Op::Write(key, value) => state[*key as usize] = vec![*value],
            _ => {}
        }
    }
    Some(state)
}

fn is_before(one: &Attempt, other: &Attempt) -> bool {
    one.outcome != Outcome::Unknown && one.end < other.begin
}

/// Whether some order explains everything. Strict: in time, and for aborted attempts, too, which
/// leave nothing. Otherwise: of the committed ones alone. Who is unknown did happen, or did not.
pub(crate) fn is_serializable(history: &History, strict: bool) -> bool {
    let unknown: Vec<usize> =
        (0..history.len()).filter(|at| history[*at].outcome == Outcome::Unknown).collect();
    (0..1u32 << unknown.len()).any(|chosen| {
        let commits = |at: usize| match history[at].outcome {
            Outcome::Committed => true,
            Outcome::Aborted => false,
            Outcome::Unknown => {
                let place = unknown.iter().position(|unknown| *unknown == at).expect("unknown");
                chosen >> place & 1 == 1
            }
        };
        let counted: u32 =
            (0..history.len()).filter(|at| strict || commits(*at)).map(|at| 1 << at).sum();
        place(history, counted, strict, &commits, &State::default())
    })
}

fn place(
    history: &History,
    left: u32,
    strict: bool,
    commits: &dyn Fn(usize) -> bool,
    state: &State,
) -> bool {
    if left == 0 {
        return true;
    }
    (0..history.len()).filter(|at| left >> at & 1 == 1).any(|at| {
        let late =
            |other: usize| left >> other & 1 == 1 && is_before(&history[other], &history[at]);
        if strict && (0..history.len()).any(late) {
            return false;
        }
        let Some(after) = apply(&history[at], state) else { return false };
        let next = if commits(at) { &after } else { state };
        place(history, left & !(1 << at), strict, commits, next)
    })
}

/// Whether each committed attempt can have read from a snapshot, and no two that overlap wrote the same.
pub(crate) fn is_snapshot(history: &History) -> bool {
    let unknown: Vec<usize> =
        (0..history.len()).filter(|at| history[*at].outcome == Outcome::Unknown).collect();
    (0..1u32 << unknown.len()).any(|chosen| {
        let commits = |at: &usize| match history[*at].outcome {
            Outcome::Committed => true,
            Outcome::Aborted => false,
            Outcome::Unknown => {
                let place = unknown.iter().position(|unknown| unknown == at).expect("unknown");
                chosen >> place & 1 == 1
            }
        };
        let members: Vec<usize> = (0..history.len()).filter(commits).collect();
        let mut world = World { history, members: &members, begun: vec![None; members.len()] };
        world.go(&State::default(), 0)
    })
}

struct World<'a> {
    history: &'a History,
    members: &'a [usize],
    /// How many had committed when each began.
    begun: Vec<Option<(usize, State)>>,
}

impl World<'_> {
    /// One begins, or one commits. `committed` are those that have.
    fn go(&mut self, state: &State, committed: u32) -> bool {
        if committed.count_ones() as usize == self.members.len() {
            return true;
        }
        for at in 0..self.members.len() {
            if committed >> at & 1 == 1 {
                continue;
            }
            match self.begun[at].clone() {
                None => {
                    self.begun[at] = Some((committed as usize, state.clone()));
                    if apply(&self.history[self.members[at]], state).is_some()
                        && self.go(state, committed)
                    {
                        return true;
                    }
                    self.begun[at] = None;
                }
                Some((before, _)) => {
                    let since = committed & !(before as u32);
                    let clash = (0..self.members.len()).any(|other| {
                        since >> other & 1 == 1
                            && writes(&self.history[self.members[at]]).any(|key| {
                                writes(&self.history[self.members[other]]).any(|k| k == key)
                            })
                    });
                    if clash {
                        continue;
                    }
                    let mut next = state.clone();
                    for op in &self.history[self.members[at]].ops {
                        match op {
                            Op::Append(key, element) => next[*key as usize].push(*element),
                            Op::Write(key, value) => next[*key as usize] = vec![*value],
                            _ => {}
                        }
                    }
                    if self.go(&next, committed | 1 << at) {
                        return true;
                    }
                }
            }
        }
        false
    }
}

fn writes(attempt: &Attempt) -> impl Iterator<Item = u8> + '_ {
    attempt.ops.iter().filter_map(|op| match op {
        Op::Append(key, _) | Op::Write(key, _) => Some(*key),
        _ => None,
    })
}

/// A run of a careless store: attempts overlap, read what is there at the time, and write at their end; now
/// and then a read sees something older, or newer.
pub(crate) fn any_history(random: &mut Random, registers: bool) -> History {
    let attempts = 2 + random.below(4) as usize;
    let keys = 1 + random.below(3) as usize;
    let mut states = vec![State::default()];
    let mut history = History::new();
    let mut clock = 1;
    let mut element = 0;
    let care = random.below(4);
    for _ in 0..attempts {
        let begin = clock.max(2) - random.below(2).min(1) * random.below(clock.max(2) - 1);
        let outcome = match random.below(8) {
            0 => Outcome::Aborted,
            1 => Outcome::Unknown,
            _ => Outcome::Committed,
        };
        let newest = states.last().expect("one").clone();
        let chosen = match random.below(3 + 3 * care) {
            0 => states[random.below(states.len() as u64) as usize].clone(),
            _ => newest.clone(),
        };
        let (mut seen, mut next) = (chosen, newest);
        let mut ops = Vec::new();
        for _ in 0..1 + random.below(4) {
            let key = random.below(keys as u64) as u8;
            let at = key as usize;
            if random.below(2) == 0 {
                if random.below(6 + 6 * care) == 0 {
                    seen = states[random.below(states.len() as u64) as usize].clone();
                }
                ops.push(if registers {
                    Op::ReadRegister(key, seen[at].first().copied())
                } else {
                    Op::Read(key, seen[at].clone())
                });
            } else {
                element += 1;
                if registers {
                    ops.push(Op::Write(key, element));
                    (seen[at], next[at]) = (vec![element], vec![element]);
                } else {
                    ops.push(Op::Append(key, element));
                    seen[at].push(element);
                    next[at].push(element);
                }
            }
        }
        let end = clock + 1 + random.below(3);
        history.push(Attempt { begin: begin.min(end), end, outcome, ops });
        clock = end + random.below(2);
        let happens = match outcome {
            Outcome::Committed => true,
            Outcome::Aborted => random.below(12) == 0,
            Outcome::Unknown => random.below(2) == 0,
        };
        if happens {
            states.push(next);
        }
    }
    history
}
