//! The steps of a reader at a snapshot.

use crate::rules::{Rule, Scope};
use crate::step::{Next, Step};
use crate::world::{Reading, TORN, World};

/// It takes a snapshot, and then reads both objects, each at any node that the configuration has:
/// two READs, of the lock and of the object.
pub(crate) fn steps(world: &World, scope: &Scope, next: &mut Next) {
    match world.reader.reading {
        Reading::Idle => {
            let mut after = world.clone();
            after.clock += 1;
            let reader = &mut after.reader;
            (reader.reading, reader.snapshot) = (Reading::Between, after.clock);
            for (txn, state) in world.txns.iter().enumerate() {
                reader.reported |= u8::from(state.reported) << txn;
            }
            next.push((Step::TakeSnapshot, after));
        }
        Reading::Between => {
            let object = &world.replicas[usize::from(world.reader.count)];
            for node in world.nodes(world.counts).filter(|node| !world.is_gone(*node)) {
                let seen = match scope.keeps(Rule::LockReadFirst) {
                    true => object[node].lock,
                    false => object[node].ts,
                };
                let mut after = world.clone();
                after.reader.reading = Reading::Half { node: node as u8, seen };
                next.push((Step::ReadFirst { node }, after));
            }
        }
        Reading::Half { node, seen } => {
            let replica = &world.replicas[usize::from(world.reader.count)][usize::from(node)];
            let (lock, version) = match scope.keeps(Rule::LockReadFirst) {
                true => (seen, replica.ts),
                false => (replica.lock, seen),
            };
            let is_torn = replica.torn && scope.keeps(Rule::LockReadFirst);
            let mut after = world.clone();
            after.reader.reading = Reading::Between;
            let found = judge(world, scope, (lock, version, usize::from(node)));
            let found = match scope.keeps(Rule::ReadWhole) {
                true => found.filter(|_| !is_torn),
                // A version from a record is whole.
                false if is_torn && version <= world.reader.snapshot => found.map(|_| TORN),
                false => found,
            };
            if let Some(found) = found {
                let reader = &mut after.reader;
                reader.found[usize::from(reader.count)] = found;
                reader.count += 1;
                if reader.count == 2 {
                    reader.reading = Reading::Done;
                }
            }
            next.push((Step::ReadSecond, after));
        }
        Reading::Done => {}
    }
}

/// The version that it takes; `None` if it has to read again.
fn judge(world: &World, scope: &Scope, (lock, head, node): (u8, u8, usize)) -> Option<u8> {
    let snapshot = world.reader.snapshot;
    let object = usize::from(world.reader.count);
    let may_be_earlier = lock != 0 && world.txns[usize::from(lock - 1)].t < snapshot;
    if may_be_earlier && head <= snapshot && scope.keeps(Rule::ReaderWaits) {
        return None;
    }
    let mut version = head;
    while version > snapshot {
        let txn = world.writer(version)?;
        if world.replicas[object][node].records & 1 << txn == 0 {
            return None;
        }
        version = world.txns[txn].old[object];
    }
    Some(version)
}
