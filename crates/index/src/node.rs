//! Nodes of the directory: a trie over the bits of hashes, five to a level.
//!
//! A node has 32 words, one for each value of its five bits: the address of a bucket, or of another node (lowest
//! bit set). Buckets that are for fewer bits than there are up to the node's last have several words. A node
//! that has only zeroes, or was never written, is the root of an empty table.

use farside_pool::Addr;
use farside_txn::{Target, Version};
use zerocopy::IntoBytes;

use crate::bucket::CLASS_BYTES;
use crate::tag::{self, Kind, tag};

/// Bits of a hash that a node looks at.
pub(crate) const BITS: u32 = 5;

/// Children of a node.
pub(crate) const FANOUT: usize = 1 << BITS;

const _: () = assert!(Target::bytes(FANOUT as u32) <= CLASS_BYTES);

/// How large nodes and buckets are, as objects.
pub(crate) const fn target(addr: Addr) -> Target {
    Target { addr, room: ((CLASS_BYTES - Target::bytes(0)) / 8) as u32 }
}

/// Where a word of a node leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Child {
    Nothing,
    Bucket(Target),
    Node(Target),
}

impl Child {
    fn from_word(word: u64) -> Self {
        match word {
            0 => Child::Nothing,
            word if word & 1 == 1 => Child::Node(target(Addr::from_word(word & !7))),
            word => Child::Bucket(target(Addr::from_word(word))),
        }
    }

    pub(crate) fn to_word(self) -> u64 {
        match self {
            Child::Nothing => 0,
            Child::Bucket(target) => target.addr.to_word(),
            Child::Node(target) => target.addr.to_word() | 1,
        }
    }
}

/// A node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Node(pub(crate) [u64; FANOUT]);

/// Which word of a node at a level is for a hash.
pub(crate) fn index(hash: u64, level: u32) -> usize {
    (hash >> (64 - BITS * (level + 1))) as usize % FANOUT
}

impl Node {
    pub(crate) const EMPTY: Node = Node([0; FANOUT]);

    /// From an object; `None` if that is no node of the table.
    pub(crate) fn parse(version: &Version, table: u16) -> Option<Self> {
        tag::is(version, table, Kind::Node).then_some(())?;
        Some(Node(*version.words().first_chunk()?))
    }

    pub(crate) fn child(&self, hash: u64, level: u32) -> Child {
        Child::from_word(self.0[index(hash, level)])
    }

    /// All children, each once.
    pub(crate) fn children(&self) -> Vec<Child> {
        let mut words = self.0.to_vec();
        words.sort_unstable();
        words.dedup();
        words.into_iter().filter(|word| *word != 0).map(Child::from_word).collect()
    }

    /// Replaces a child for all hashes that begin with the first `depth` bits of one.
    pub(crate) fn replace(&mut self, hash: u64, level: u32, depth: u32, child: Child) {
        let free_bits = (BITS * (level + 1)).saturating_sub(depth).min(BITS);
        let first = index(hash, level) >> free_bits << free_bits;
        self.0[first..first + (1 << free_bits)].fill(child.to_word());
    }

    /// Its tag and its bytes.
    pub(crate) fn to_bytes(self, table: u16) -> (u32, Vec<u8>) {
        (tag(table, Kind::Node, 0), self.0.as_bytes().to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farside_pool::RegionId;

    #[test]
    fn a_child_is_for_all_hashes_that_begin_alike() {
        let child = |offset| Child::Bucket(target(Addr::new(RegionId(1), offset).unwrap()));
        let mut node = Node::EMPTY;
        node.replace(0, 0, 0, child(64));
        assert_eq!(node.children(), [child(64)]);
        let one = 1 << 63;
        node.replace(one, 0, 1, child(128));
        assert_eq!((node.child(0, 0), node.child(one, 0)), (child(64), child(128)));
        assert_eq!(node.0.iter().filter(|word| **word == child(128).to_word()).count(), 16);
        node.replace(one, 0, 5, Child::Node(target(Addr::new(RegionId(0), 256).unwrap())));
        assert_eq!(node.0.iter().filter(|word| *word & 1 == 1).count(), 1);
        assert!(matches!(node.child(one, 0), Child::Node(_)));
        assert_eq!(node.child(one | 1 << 59, 0), child(128));
        assert_eq!(index(0b10_00011 << 57, 0), 16);
        assert_eq!(index(0b00000_00011 << 54, 1), 3);
    }
}
