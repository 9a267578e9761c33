//! The steps of a repairer.

use crate::rules::{Rule, Scope, members};
use crate::step::{Next, Step, Verb};
use crate::world::{Phase, Repairer, Stage, World};

/// Everything that a repairer can do next, and every verb of it that can take effect next.
pub(crate) fn steps(world: &World, scope: &Scope, by: usize, next: &mut Next) {
    let Some(txn) = scope.repairs[by] else { return };
    let repairer = &world.repairers[by];
    for node in world.nodes(repairer.moved).filter(|node| !world.is_gone(*node)) {
        act(world, scope, (by, txn, node), next);
    }
    if repairer.dead {
        return;
    }
    claim(world, scope, by, txn, next);
    if matches!(repairer.stage, Stage::Idle | Stage::Over) {
        return;
    }
    if scope.repairer_dies && by == 0 {
        let mut after = world.clone();
        after.repairers[by].dead = true;
        next.push((Step::DieRepairing { by }, after));
    }
    // Whoever acts by the old configuration hears of a node that has failed; another try is by the
    // next one.
    let misses_one = world.nodes(repairer.moved).any(|node| world.is_gone(node));
    if misses_one {
        let mut after = world.clone();
        after.repairers[by].reset(Stage::Idle);
        next.push((Step::Fail { by }, after));
    }
    match repairer.stage {
        Stage::Claimed if !misses_one => {
            let mut after = world.clone();
            after.fence(scope, txn);
            let repairer = &mut after.repairers[by];
            repairer.stage = Stage::ReadingRecords;
            repairer.moved |= scope.newest && world.removed.is_some();
            next.push((Step::Fence { by }, after));
        }
        Stage::ReadingRecords | Stage::ReadingObjects => {
            for node in world.nodes(repairer.moved).filter(|node| !world.is_gone(*node)) {
                read(world, scope, (by, txn, node), next);
            }
        }
        Stage::Finishing => finish(world, by, txn, next),
        _ => {}
    }
}

/// One repairs at a time; a claim is taken over from one who is dead, and was fenced. Somebody who
/// has met a lock may also come long after it was repaired.
fn claim(world: &World, scope: &Scope, by: usize, txn: usize, next: &mut Next) {
    let state = &world.txns[txn];
    let is_known = state.dead || state.suspected || state.fenced;
    let is_active = state.phase > Phase::Idle && state.phase < Phase::Committed;
    let is_stale = state.repaired;
    let may_start = is_known || scope.suspected[txn] && is_active;
    if world.repairers[by].stage != Stage::Idle || !may_start {
        return;
    }
    let mut after = world.clone();
    let holder = usize::from(world.claims[txn]);
    if scope.keeps(Rule::ExclusiveClaim) {
        if holder != 0 && holder != by + 1 {
            if !world.repairers[holder - 1].dead {
                return;
            }
            after.repairers[holder - 1].fence();
        }
        after.claims[txn] = by as u8 + 1;
    }
    after.txns[txn].suspected = true;
    let repairer = &mut after.repairers[by];
    repairer.moved = world.counts;
    repairer.stage = match scope.keeps(Rule::FenceFirst) {
        true => Stage::Claimed,
        false => Stage::ReadingRecords,
    };
    next.push((Step::Claim { by, optional: !is_known || is_stale }, after));
}

/// Reads all records of the transaction at a node, or lock and version of the next object there.
fn read(world: &World, scope: &Scope, (by, txn, node): (usize, usize, usize), next: &mut Next) {
    let mut after = world.clone();
    let repairer = &mut after.repairers[by];
    let step = if repairer.stage == Stage::ReadingRecords {
        if repairer.landed[node] > 0 {
            return;
        }
        for object in 0..2 {
            if world.replicas[object][node].records & 1 << txn != 0 {
                repairer.recorded[node] |= 1 << object;
            }
        }
        Step::ReadRecords { by, node }
    } else {
        let named = repairer.recorded[0] | repairer.recorded[1];
        let object = members(named).nth(usize::from(repairer.landed[node]));
        let Some(object) = object else { return };
        let replica = &world.replicas[object][node];
        let is_held = replica.lock == txn as u8 + 1;
        let is_whole = !replica.torn || !is_held || !scope.keeps(Rule::DecideByWhole);
        let is_new = replica.ts >= world.txns[txn].w && is_whole;
        let has_record = repairer.recorded[node] & 1 << object != 0;
        let is_found = replica.ts == world.txns[txn].w;
        let is_undone = is_found || scope.keeps(Rule::RestoreWhateverIsThere);
        repairer.held[node] |= u8::from(is_held) << object;
        repairer.new[node] |= u8::from(is_new) << object;
        repairer.undo[node] |= u8::from(is_held && has_record && is_undone) << object;
        Step::ReadObject { by, object, node }
    };
    repairer.landed[node] += 1;
    let goal = match repairer.stage {
        Stage::ReadingRecords => 1,
        _ => (repairer.recorded[0] | repairer.recorded[1]).count_ones() as u8,
    };
    if world.nodes(repairer.moved).all(|node| repairer.landed[node] == goal) {
        repairer.landed = [0; 2];
        if repairer.stage == Stage::ReadingObjects {
            decide(&mut after, scope, by, txn);
        } else if repairer.recorded == [0; 2] {
            // It has installed nothing: its locks will be nobody's.
            repairer.stage = Stage::Finishing;
        } else {
            repairer.stage = Stage::ReadingObjects;
        }
    }
    next.push((step, after));
}

/// Committed if the records name all objects, and each of them is new everywhere.
fn decide(world: &mut World, scope: &Scope, by: usize, txn: usize) {
    let nodes: Vec<usize> = world.nodes(world.repairers[by].moved).collect();
    let repairer = &mut world.repairers[by];
    let named = repairer.recorded[0] | repairer.recorded[1];
    let is_held = nodes.iter().any(|node| repairer.held[*node] != 0);
    if !is_held && scope.keeps(Rule::NothingLeftToDecide) {
        repairer.stage = Stage::Finishing;
        return;
    }
    let is_installed = nodes.iter().all(|node| repairer.new[*node] == named);
    let names_all = named == scope.writes[txn] || !scope.keeps(Rule::RecordWithN);
    let committed = match scope.keeps(Rule::DecideByTime) {
        true => names_all && is_installed,
        false => nodes.iter().any(|node| repairer.held[*node] != named),
    };
    repairer.committed = Some(committed);
    // Without the rule the last object comes first: its body was posted last.
    let part = match scope.keeps(Rule::RestoreAllFirst) {
        true => named,
        false => 1 << members(named).last().unwrap_or(0),
    };
    (repairer.part, repairer.rest) = (part, named & !part);
    repairer.stage = if committed { Stage::Releasing } else { Stage::Restoring };
    advance(world, scope, by);
}

/// What is posted to a node, in the order of the queue.
fn posted(repairer: &Repairer, scope: &Scope, node: usize, index: u8) -> Option<(Verb, usize)> {
    let part = repairer.part;
    let (objects, verbs): (u8, &[Verb]) = match repairer.stage {
        Stage::Restoring if scope.tears => {
            (part & repairer.undo[node], &[Verb::Tear, Verb::Restore])
        }
        Stage::Restoring => (part & repairer.undo[node], &[Verb::Restore]),
        Stage::Releasing => (part, &[Verb::Unlock]),
        _ => return None,
    };
    let index = usize::from(index);
    let object = members(objects).nth(index / verbs.len())?;
    Some((verbs[index % verbs.len()], object))
}

/// The next restore or release takes effect, whether its sender lives or not.
fn act(world: &World, scope: &Scope, (by, txn, node): (usize, usize, usize), next: &mut Next) {
    let repairer = &world.repairers[by];
    let next_one = posted(repairer, scope, node, repairer.landed[node]);
    let Some((verb, object)) = next_one else { return };
    let other = (verb == Verb::Tear).then_some(Verb::TearWithTime);
    let old = world.txns[txn].old[object];
    for verb in std::iter::once(verb).chain(other) {
        let mut after = world.clone();
        let replica = &mut after.replicas[object][node];
        match verb {
            Verb::Tear => replica.torn = true,
            Verb::TearWithTime => (replica.ts, replica.torn) = (old, true),
            Verb::Restore => (replica.ts, replica.torn) = (old, false),
            _ if replica.lock == txn as u8 + 1 => replica.lock = 0,
            _ => {}
        }
        after.repairers[by].landed[node] += 1;
        if !repairer.dead {
            advance(&mut after, scope, by);
        }
        next.push((Step::Repair { by, verb, object, node }, after));
    }
}

/// All that was posted is acknowledged: the next round.
fn advance(world: &mut World, scope: &Scope, by: usize) {
    let moved = world.repairers[by].moved;
    let nodes: Vec<usize> = world.nodes(moved).collect();
    let repairer = &mut world.repairers[by];
    while matches!(repairer.stage, Stage::Restoring | Stage::Releasing) {
        let is_landed =
            |node: &usize| posted(repairer, scope, *node, repairer.landed[*node]).is_none();
        if !nodes.iter().all(is_landed) {
            return;
        }
        repairer.landed = [0; 2];
        if repairer.stage == Stage::Restoring {
            repairer.stage = Stage::Releasing;
        } else if repairer.rest != 0 {
            (repairer.part, repairer.rest) = (repairer.rest, 0);
            let committed = repairer.committed == Some(true);
            repairer.stage = if committed { Stage::Releasing } else { Stage::Restoring };
        } else {
            repairer.stage = Stage::Finishing;
        }
    }
}

/// What the transaction still has locked is nobody's, and the claim is given up.
fn finish(world: &World, by: usize, txn: usize, next: &mut Next) {
    let mut after = world.clone();
    if let Some(committed) = world.repairers[by].committed {
        after.verdicts[txn] |= 1 << u8::from(committed);
    }
    after.txns[txn].repaired = true;
    if world.claims[txn] == by as u8 + 1 {
        after.claims[txn] = 0;
    }
    after.repairers[by].reset(Stage::Over);
    next.push((Step::Finish { by }, after));
}

impl Repairer {
    /// Nothing that it has posted has any effect any more.
    pub(crate) fn fence(&mut self) {
        self.reset(Stage::Over);
        self.fenced = true;
    }

    /// Everything that it knew is forgotten.
    fn reset(&mut self, stage: Stage) {
        *self = Repairer { stage, dead: self.dead, fenced: self.fenced, ..Default::default() };
    }
}
