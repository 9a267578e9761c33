//! What a thread remembers of the tries: hints, which may be stale.

use std::collections::HashMap;

use farside_pool::Addr;
use farside_txn::Target;

use crate::node::{Child, Node};
use crate::table::Table;

/// Nodes as they were when they were last seen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Directory {
    nodes: HashMap<(u16, Addr), Node>,
    /// All of it was learned since.
    since: u64,
}

/// No trie is deeper: a hash has no more bits.
const DEEPEST: u32 = 11;

impl Directory {
    /// Addresses that were learned before this are not used any more.
    pub(crate) fn use_since(&mut self, floor: u64) {
        if floor > self.since {
            self.nodes.clear();
            self.since = floor;
        }
    }

    /// Where the bucket of a hash may be; `None` if not enough is known.
    pub(crate) fn bucket(&self, table: &Table, hash: u64) -> Option<Target> {
        let mut addr = table.root;
        for level in 0..=DEEPEST {
            match self.nodes.get(&(table.id, addr))?.child(hash, level) {
                Child::Nothing => return None,
                Child::Bucket(bucket) => return Some(bucket),
                Child::Node(node) => addr = node.addr,
            }
        }
        None
    }

    /// A node was seen, by a transaction that uses addresses since a time.
    pub(crate) fn learn(&mut self, table: u16, addr: Addr, node: Node, since: u64) {
        // One that is older than what others use tells of places that may be something else by now.
        if since >= self.since {
            self.nodes.insert((table, addr), node);
        }
    }

    /// What is known of a table is not to be relied upon.
    pub(crate) fn forget(&mut self, table: u16) {
        self.nodes.retain(|(known, _), _| *known != table);
    }
}
