//! What processes, nodes and people ask the manager for.

use serde::{Deserialize, Serialize};

use crate::config::Replica;

/// A wish, laid down in the store.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Petition {
    /// A client process wants to use the pool.
    Session {
        /// The id under which it is fenced.
        client: u64,
    },
    /// A formatted node wants to be a member.
    Join(Newcomer),
    /// A node is to leave.
    Drain {
        /// Its number.
        node: u16,
    },
    /// A region is to be made.
    Region {
        /// Its number: the next free one, so that the wish is granted once.
        number: u16,
        /// How large.
        bytes: u64,
        /// With how many copies, the primary included.
        copies: usize,
    },
    /// A copy in the making is whole.
    Whole {
        /// Of which region.
        region: u16,
        /// Where.
        replica: Replica,
    },
}

/// A formatted node that is no member yet.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Newcomer {
    /// Where it is reached.
    pub address: String,
    /// Which of its lives this is.
    pub incarnation: u64,
    /// How much memory it has.
    pub bytes: u64,
    /// It is for a version cache, and for no regions.
    #[serde(default)]
    pub versions: bool,
}

impl Petition {
    /// Under which it is laid down: who asks for the same asks once.
    pub fn key(&self) -> String {
        match self {
            Petition::Session { client } => format!("session-{client:016x}"),
            Petition::Join(newcomer) => format!("node-{:016x}", newcomer.incarnation),
            Petition::Drain { node } => format!("drain-{node}"),
            Petition::Region { number, .. } => format!("region-{number}"),
            Petition::Whole { region, replica } => format!("whole-{region}-{}", replica.node),
        }
    }

    /// As it is stored.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("plain data")
    }

    /// Reads what was stored; `None` if it is not one.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }
}
