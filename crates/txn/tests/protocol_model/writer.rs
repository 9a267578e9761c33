//! The steps of a transaction that writes.

use crate::rules::{Rule, Scope};
use crate::step::{Next, Step, Verb};
use crate::world::{Phase, World};

/// Everything that a transaction can do next, and every verb of it that can take effect next.
pub(crate) fn steps(world: &World, scope: &Scope, txn: usize, next: &mut Next) {
    if scope.writes[txn] == 0 {
        return;
    }
    begin(world, scope, txn, next);
    for node in 0..2 {
        land(world, scope, txn, node, next);
    }
    let state = &world.txns[txn];
    let may_die = scope.dies[txn] && !state.dead && !state.fenced;
    if may_die && (state.phase > Phase::Idle && state.phase < Phase::Committed) {
        next.push((Step::Die { txn }, die(world, scope, txn)));
    }
    if state.dead {
        return;
    }
    if state.phase == Phase::Locking && !state.fenced {
        for node in world.nodes(state.moved) {
            ask_again(world, scope, txn, node, next);
        }
        take_time(world, scope, txn, next);
    }
    report(world, scope, txn, next);
    if scope.breaks && !state.fenced {
        break_queues(world, scope, txn, next);
    }
    if world.removed.is_some() && !state.moved {
        learn(world, scope, txn, next);
    }
}

/// What was on its way is lost, or was acknowledged in vain. In new queues the locks that may be
/// held are given back, or the same is posted again.
fn break_queues(world: &World, scope: &Scope, txn: usize, next: &mut Next) {
    let mut after = world.clone();
    let (state, count) = (&mut after.txns[txn], scope.count(txn));
    match state.phase {
        Phase::Locking | Phase::Aborting => {
            (state.phase, state.landed) = (Phase::Aborting, [count; 2]);
        }
        Phase::Installing | Phase::Releasing => state.landed = [0; 2],
        _ => return,
    }
    next.push((Step::Break { txn }, after));
}

/// A thread dies with all its transactions.
fn die(world: &World, scope: &Scope, txn: usize) -> World {
    let mut after = world.clone();
    let all = if scope.one_thread { 0..2 } else { txn..txn + 1 };
    for txn in &mut after.txns[all] {
        txn.dead = true;
        if txn.phase == Phase::Idle {
            txn.stop();
        }
    }
    after
}

/// It begins by a configuration that counts.
fn begin(world: &World, scope: &Scope, txn: usize, next: &mut Next) {
    let others = [Phase::Releasing, Phase::Committed, Phase::Aborted];
    let waits = scope.one_thread && txn == 1 && !others.contains(&world.txns[0].phase);
    let state = &world.txns[txn];
    if state.phase != Phase::Idle || waits || state.fenced {
        return;
    }
    let too_early = !scope.keeps(Rule::TimeWhenItCounts) && world.removed.is_some();
    for moved in [false, true] {
        if moved != world.counts && !(moved && too_early) {
            continue;
        }
        let mut after = world.clone();
        let state = &mut after.txns[txn];
        (state.phase, state.t, state.moved) = (Phase::Locking, world.clock, moved);
        next.push((Step::Begin { txn }, after));
    }
}

/// What a transaction has posted to a node in its phase, in the order of the queue.
fn verb(scope: &Scope, txn: usize, phase: Phase, index: u8) -> Option<(Verb, usize)> {
    let count = scope.count(txn);
    let install: &[Verb] = match scope.keeps(Rule::ReleaseAfterAcks) {
        true if scope.tears => &[Verb::Record, Verb::Tear, Verb::Body],
        true => &[Verb::Record, Verb::Body],
        false => &[Verb::Record, Verb::Body, Verb::Clear],
    };
    let width = install.len() as u8;
    let (verb, number) = match phase {
        Phase::Locking | Phase::Aborting if index < count => (Verb::Lock, index),
        Phase::Aborting => (Verb::Unlock, index - count),
        Phase::Installing => (install[usize::from(index % width)], index / width),
        Phase::ReadingBack => (Verb::Check, index),
        Phase::Releasing => (Verb::Unlock, index),
        _ => return None,
    };
    scope.objects(txn).nth(usize::from(number)).map(|object| (verb, object))
}

/// Everything that was posted to a node has taken effect there.
fn is_all_landed(world: &World, scope: &Scope, txn: usize, node: usize) -> bool {
    let state = &world.txns[txn];
    verb(scope, txn, state.phase, state.landed[node]).is_none()
}

/// The next verb in the queue to a node takes effect, whether its sender lives or not.
fn land(world: &World, scope: &Scope, txn: usize, node: usize, next: &mut Next) {
    let state = &world.txns[txn];
    let is_reached = world.nodes(state.moved).any(|known| known == node) && !world.is_gone(node);
    if state.fenced || !is_reached {
        return;
    }
    let Some((verb, object)) = verb(scope, txn, state.phase, state.landed[node]) else { return };
    // Read back only what cannot be decided otherwise any more.
    let may_check = world.counts || scope.newest || !scope.keeps(Rule::ReportWhenItCounts);
    if verb == Verb::Check && (state.dead || !may_check) {
        return;
    }
    let other = (verb == Verb::Tear).then_some(Verb::TearWithTime);
    for verb in std::iter::once(verb).chain(other) {
        let mut after = world.clone();
        after.txns[txn].landed[node] += 1;
        take_effect(&mut after, scope, txn, (verb, object, node));
        advance(&mut after, scope, txn);
        next.push((Step::Land { txn, verb, object, node }, after));
    }
}

fn take_effect(
    world: &mut World,
    scope: &Scope,
    txn: usize,
    (verb, object, node): (Verb, usize, usize),
) {
    let is_primary = node == world.primary(world.txns[txn].moved);
    let state = &mut world.txns[txn];
    let replica = &mut world.replicas[object][node];
    let own = txn as u8 + 1;
    match verb {
        Verb::Lock if replica.lock == 0 => lock(world, txn, object, node),
        // Whoever has lost a primary gives way at once.
        Verb::Lock if is_primary && !state.dead && scope.keeps(Rule::AbortOnPromotion) => {
            state.phase = Phase::Aborting;
        }
        Verb::Lock if is_primary && !state.dead && !state.moved => state.phase = Phase::Aborting,
        Verb::Lock => {}
        Verb::Record if scope.one_thread => replica.records = 1 << txn,
        Verb::Record => replica.records |= 1 << txn,
        Verb::Tear => replica.torn = true,
        Verb::TearWithTime => (replica.ts, replica.torn) = (state.w, true),
        Verb::Body => (replica.ts, replica.torn) = (state.w, false),
        Verb::Clear => replica.lock = 0,
        Verb::Unlock => {
            let any = state.phase == Phase::Aborting && !scope.keeps(Rule::ReleaseOwnOnly);
            if replica.lock == own || any {
                replica.lock = 0;
            }
        }
        Verb::Check => {
            if replica.lock != own || replica.ts != state.w || replica.torn {
                state.stop();
            }
        }
        Verb::Restore => {}
    }
}

/// A bit is won; at the primary the object is read behind it, unless it was read at an earlier
/// primary.
fn lock(world: &mut World, txn: usize, object: usize, node: usize) {
    let is_primary = node == world.primary(world.txns[txn].moved);
    let state = &mut world.txns[txn];
    let was_read = state.moved && node == 1 && state.won[0] & 1 << object != 0;
    let replica = &mut world.replicas[object][node];
    replica.lock = txn as u8 + 1;
    state.won[node] |= 1 << object;
    if is_primary && !was_read {
        state.old[object] = replica.ts;
    }
}

/// What one who lives does at once when its verbs are acknowledged.
pub(crate) fn advance(world: &mut World, scope: &Scope, txn: usize) {
    let waiting = [Phase::Aborting, Phase::Installing, Phase::Releasing];
    if !waiting.contains(&world.txns[txn].phase) {
        return;
    }
    let moved = world.txns[txn].moved;
    let installs = world.txns[txn].phase == Phase::Installing;
    let is_done = world.nodes(moved).all(|node| {
        // Nobody waits for a release at a node that has failed.
        is_all_landed(world, scope, txn, node) || !installs && world.is_gone(node)
    });
    let state = &mut world.txns[txn];
    if !is_done || state.dead {
        return;
    }
    match state.phase {
        Phase::Aborting => state.end(Phase::Aborted),
        Phase::Releasing => state.end(Phase::Committed),
        _ if state.anew && scope.keeps(Rule::ReadBack) => {
            (state.phase, state.landed) = (Phase::ReadingBack, [0; 2]);
        }
        _ => {}
    }
}

/// A backup's bit that another one has had is asked for until it is free.
fn ask_again(world: &World, scope: &Scope, txn: usize, node: usize, next: &mut Next) {
    let state = &world.txns[txn];
    let asked = world.nodes(state.moved).all(|node| state.landed[node] >= scope.count(txn));
    if !asked || world.is_gone(node) {
        return;
    }
    for object in scope.objects(txn).filter(|object| state.won[node] & 1 << object == 0) {
        let is_free = world.replicas[object][node].lock == 0;
        if is_free || !scope.keeps(Rule::NeverSteal) {
            let mut after = world.clone();
            lock(&mut after, txn, object, node);
            next.push((Step::AskAgain { txn, object, node }, after));
        }
    }
}

/// With all bits held everywhere it takes its time, and posts what it installs.
fn take_time(world: &World, scope: &Scope, txn: usize, next: &mut Next) {
    let state = &world.txns[txn];
    let holds = |node: usize| {
        let is_needed = node == world.primary(state.moved) || scope.keeps(Rule::TimeAfterAllBits);
        state.landed[node] >= scope.count(txn)
            && (state.won[node] == scope.writes[txn] || !is_needed)
    };
    let over = [Phase::Committed, Phase::Aborted];
    let is_free = !scope.one_thread
        || txn == 0
        || over.contains(&world.txns[0].phase)
        || !scope.keeps(Rule::ReuseAfterReleases);
    let counts = !state.moved || world.counts || !scope.keeps(Rule::TimeWhenItCounts);
    if !is_free || !counts || !world.nodes(state.moved).all(holds) {
        return;
    }
    let mut after = world.clone();
    after.clock += 1;
    let state = &mut after.txns[txn];
    (state.phase, state.landed, state.w) = (Phase::Installing, [0; 2], after.clock);
    next.push((Step::TakeTime { txn }, after));
}

/// When all is acknowledged, and read back where something went wrong, it is committed.
fn report(world: &World, scope: &Scope, txn: usize, next: &mut Next) {
    let state = &world.txns[txn];
    let has = |node: usize| is_all_landed(world, scope, txn, node);
    let all = world.nodes(state.moved).all(has);
    let counts = world.counts || !scope.keeps(Rule::ReportWhenItCounts);
    let is_committed = match state.phase {
        Phase::Installing => all && (!state.anew || !scope.keeps(Rule::ReadBack) && counts),
        Phase::ReadingBack => all,
        _ => false,
    };
    let early = !scope.keeps(Rule::ReportAfterAcks)
        && state.phase == Phase::Installing
        && !state.reported
        && has(world.primary(state.moved));
    if !is_committed && !early {
        return;
    }
    let mut after = world.clone();
    let state = &mut after.txns[txn];
    state.reported = true;
    if state.fenced {
        state.stop();
    } else if is_committed {
        (state.phase, state.landed) = (Phase::Releasing, [0; 2]);
    }
    next.push((Step::Report { txn }, after));
}

/// It hears of a new configuration: without all its locks it aborts; with its time it posts the
/// same again to those who are left, in new queues.
fn learn(world: &World, scope: &Scope, txn: usize, next: &mut Next) {
    let mut after = world.clone();
    let state = &mut after.txns[txn];
    match state.phase {
        Phase::Locking if state.fenced => return,
        Phase::Locking if scope.keeps(Rule::AbortOnPromotion) => state.phase = Phase::Aborting,
        Phase::Locking => {
            state.moved = true;
            // What was not read at the old primary is read at the new one, where it is held.
            let was_first = world.removed == Some(0);
            let missing = if was_first { state.won[1] & !state.won[0] } else { 0 };
            for object in scope.objects(txn).filter(|object| missing & 1 << object != 0) {
                state.old[object] = world.replicas[object][1].ts;
            }
        }
        Phase::Installing if !scope.keeps(Rule::ReadBack) => {
            (state.moved, state.anew) = (true, true);
        }
        Phase::Installing if state.fenced => return,
        Phase::Installing => {
            (state.moved, state.anew, state.landed) = (true, true, [0; 2]);
        }
        _ => return,
    }
    advance(&mut after, scope, txn);
    next.push((Step::Learn { txn }, after));
}
