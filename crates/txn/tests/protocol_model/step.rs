//! What can happen next.

use std::fmt;

use crate::rules::{Rule, Scope};
use crate::world::{Phase, Reading, Stage, World};
use crate::{reader, repairer, writer};

/// A verb that takes effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verb {
    Lock,
    Record,
    /// The body is half written, and perhaps its time.
    Tear,
    TearWithTime,
    Body,
    /// A WRITE of 0 to the lock.
    Clear,
    /// A CAS from its own word to 0.
    Unlock,
    /// READs of lock and version.
    Check,
    Restore,
}

/// One atomic step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    Begin { txn: usize },
    Land { txn: usize, verb: Verb, object: usize, node: usize },
    AskAgain { txn: usize, object: usize, node: usize },
    TakeTime { txn: usize },
    Report { txn: usize },
    Learn { txn: usize },
    Break { txn: usize },
    Die { txn: usize },
    Claim { by: usize, optional: bool },
    Fence { by: usize },
    ReadRecords { by: usize, node: usize },
    ReadObject { by: usize, object: usize, node: usize },
    Repair { by: usize, verb: Verb, object: usize, node: usize },
    Finish { by: usize },
    Fail { by: usize },
    DieRepairing { by: usize },
    ClearOrphan { object: usize, node: usize },
    TakeSnapshot,
    ReadFirst { node: usize },
    ReadSecond,
    NodeFails { node: usize },
    NodeIsRemoved { node: usize },
    Configure,
    PutOut { txn: usize, optional: bool },
    PutOutRepairer { by: usize },
    Count,
}

impl Step {
    /// What need not happen, ever: a state that has no other way out is an end.
    pub(crate) fn is_optional(self) -> bool {
        match self {
            Step::Claim { optional, .. } | Step::PutOut { optional, .. } => optional,
            Step::Break { .. } | Step::Die { .. } | Step::DieRepairing { .. } => true,
            Step::NodeFails { .. } | Step::NodeIsRemoved { .. } => true,
            _ => false,
        }
    }

    /// A reader that waits goes round in circles: that is no way out for others.
    pub(crate) fn is_of_reader(self) -> bool {
        matches!(self, Step::TakeSnapshot | Step::ReadFirst { .. } | Step::ReadSecond)
    }
}

/// The states after this one.
pub(crate) type Next = Vec<(Step, World)>;

/// All that can happen next.
pub(crate) fn successors(world: &World, scope: &Scope, next: &mut Next) {
    for txn in 0..2 {
        writer::steps(world, scope, txn, next);
    }
    for by in 0..2 {
        repairer::steps(world, scope, by, next);
    }
    reader::steps(world, scope, next);
    configuration_steps(world, scope, next);
    clear_orphans(world, scope, next);
}

/// What is locked by the name of one who was repaired is nobody's: whoever meets it gives it back,
/// at the nodes where it was repaired.
fn clear_orphans(world: &World, scope: &Scope, next: &mut Next) {
    for object in 0..2 {
        let is_left_out = scope.newest && scope.keeps(Rule::OrphansWhereRepaired);
        for node in world.nodes(world.counts || is_left_out).filter(|node| !world.is_gone(*node)) {
            let lock = world.replicas[object][node].lock;
            if lock != 0 && world.txns[usize::from(lock - 1)].repaired {
                let mut after = world.clone();
                after.replicas[object][node].lock = 0;
                next.push((Step::ClearOrphan { object, node }, after));
            }
        }
    }
}

/// A node fails, or is taken for failed; a configuration without it is made, and counts when all
/// others who act by the old one have ended that, or were put out.
fn configuration_steps(world: &World, scope: &Scope, next: &mut Next) {
    if world.gone.is_none() && world.removed.is_none() {
        for node in 0..2 {
            if scope.fails {
                next.push((Step::NodeFails { node }, fail_node(world, scope, node)));
            }
            if scope.removed {
                let after = World { removed: Some(node as u8), ..world.clone() };
                next.push((Step::NodeIsRemoved { node }, after));
            }
        }
    }
    if world.gone.is_some() && world.removed.is_none() {
        next.push((Step::Configure, World { removed: world.gone, ..world.clone() }));
    }
    if world.removed.is_none() || world.counts {
        return;
    }
    for txn in 0..2 {
        let state = &world.txns[txn];
        let is_active = !matches!(state.phase, Phase::Idle | Phase::Committed | Phase::Aborted);
        let may_be = state.dead || state.suspected || scope.suspected[txn];
        if is_active && may_be && !state.fenced {
            let mut after = world.clone();
            after.fence(scope, txn);
            next.push((Step::PutOut { txn, optional: !state.dead }, after));
        }
    }
    for by in 0..2 {
        if world.repairers[by].dead && !world.repairers[by].fenced {
            let mut after = world.clone();
            after.repairers[by].fence();
            next.push((Step::PutOutRepairer { by }, after));
        }
    }
    if may_count(world, scope) {
        let mut after = World { counts: true, ..world.clone() };
        after.reader.forget(world.removed);
        next.push((Step::Count, after));
    }
}

fn fail_node(world: &World, scope: &Scope, node: usize) -> World {
    let mut after = World { gone: Some(node as u8), ..world.clone() };
    for object in &mut after.replicas {
        object[node] = Default::default();
    }
    after.reader.forget(after.gone);
    for txn in 0..2 {
        writer::advance(&mut after, scope, txn);
    }
    after
}

/// Those who have begun nothing acknowledge at once; those who have begun, when they are done or
/// have moved; those who repair by the old configuration, when they are done.
fn may_count(world: &World, scope: &Scope) -> bool {
    let over = [Phase::Idle, Phase::Committed, Phase::Aborted, Phase::Stopped];
    let txns = world.txns.iter().all(|txn| over.contains(&txn.phase) || txn.moved || txn.fenced);
    let repairers = world.repairers.iter().all(|repairer| {
        let is_idle = matches!(repairer.stage, Stage::Idle | Stage::Over);
        is_idle || repairer.moved || repairer.fenced || !scope.keeps(Rule::CountsAfterRepairs)
    });
    txns && repairers
}

impl crate::world::Reader {
    /// What was read at a node that is no more.
    fn forget(&mut self, gone: Option<u8>) {
        if let Reading::Half { node, .. } = self.reading
            && Some(node) == gone
        {
            self.reading = Reading::Between;
        }
    }
}

fn name(object: usize, node: usize) -> String {
    format!("{}.{}", ["X", "Y"][object], ["P", "B"][node])
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Step::Begin { txn } => write!(f, "T{} begins", txn + 1),
            Step::Land { txn, verb, object, node } => {
                write!(f, "T{}: {verb:?} lands at {}", txn + 1, name(object, node))
            }
            Step::AskAgain { txn, object, node } => {
                write!(f, "T{}: asks again for {}", txn + 1, name(object, node))
            }
            Step::TakeTime { txn } => write!(f, "T{} takes its time and installs", txn + 1),
            Step::Report { txn } => write!(f, "T{} reports its commit", txn + 1),
            Step::Learn { txn } => write!(f, "T{} learns the new configuration", txn + 1),
            Step::Break { txn } => write!(f, "the queues of T{} break", txn + 1),
            Step::Die { txn } => write!(f, "T{} dies", txn + 1),
            Step::Claim { by, .. } => write!(f, "repairer {} claims", by + 1),
            Step::Fence { by } => write!(f, "repairer {} fences", by + 1),
            Step::ReadRecords { by, node } => {
                write!(f, "repairer {} reads records at node {node}", by + 1)
            }
            Step::ReadObject { by, object, node } => {
                write!(f, "repairer {} reads {}", by + 1, name(object, node))
            }
            Step::Repair { by, verb, object, node } => {
                write!(f, "repairer {}: {verb:?} lands at {}", by + 1, name(object, node))
            }
            Step::Finish { by } => write!(f, "repairer {} is done", by + 1),
            Step::Fail { by } => write!(f, "repairer {} gives up for now", by + 1),
            Step::DieRepairing { by } => write!(f, "repairer {} dies", by + 1),
            Step::ClearOrphan { object, node } => {
                write!(f, "the orphaned lock of {} is cleared", name(object, node))
            }
            Step::TakeSnapshot => write!(f, "the reader takes its snapshot"),
            Step::ReadFirst { node } => write!(f, "the reader's first READ at node {node}"),
            Step::ReadSecond => write!(f, "the reader's second READ"),
            Step::NodeFails { node } => write!(f, "node {node} fails"),
            Step::NodeIsRemoved { node } => write!(f, "node {node} is removed, and lives"),
            Step::Configure => write!(f, "there is a configuration without it"),
            Step::PutOut { txn, .. } => write!(f, "T{} is fenced for the configuration", txn + 1),
            Step::PutOutRepairer { by } => {
                write!(f, "repairer {} is fenced for the configuration", by + 1)
            }
            Step::Count => write!(f, "the new configuration counts"),
        }
    }
}
