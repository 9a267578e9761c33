//! What can go wrong with a verb, a call or a connection.

use std::time::Duration;

use crate::{ClientId, MAX_ROUND_BYTES, MAX_ROUND_NODES, MAX_VERB_BYTES, NodeId};

/// The result of fabric operations.
pub type Result<T, E = FabricError> = std::result::Result<T, E>;

/// An error completion ([C5](crate::contracts#c5-errors)), or the failure of a control operation.
///
/// Only [`FabricError::Refused`] promises that nothing took effect.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FabricError {
    /// The round asked for something that no backend may do; none of its verbs was posted.
    #[error("refused: {0}; no verb of this round was posted")]
    Refused(Refusal),
    /// The memory node is gone, or it is a new incarnation that this queue does not know.
    #[error("{0} is gone; reconnect once the configuration says that it is back")]
    NodeGone(NodeId),
    /// This process was fenced: none of its verbs has any effect any more.
    #[error("{0} was fenced; its process must stop, and may come back under a new id")]
    Fenced(ClientId),
    /// The operation is not permitted for this process.
    #[error("{node}: access denied: {why}")]
    AccessDenied {
        /// The node that was asked.
        node: NodeId,
        /// What was not permitted, and what to do.
        why: String,
    },
    /// No answer within the bound; whether it took effect is unknown.
    #[error("{node} did not answer within {after:?}")]
    TimedOut {
        /// The node that was asked.
        node: NodeId,
        /// The bound that passed.
        after: Duration,
    },
    /// An earlier verb of this queue failed: reconnect before posting more.
    #[error("the queue to {0} is broken by an earlier error; reconnect it")]
    Broken(NodeId),
    /// Nobody serves that service on the node.
    #[error("{node} has no service {service}")]
    NoService {
        /// The node that was asked.
        node: NodeId,
        /// The number of the service.
        service: u16,
    },
    /// The service ran and reported a failure of its own.
    #[error("service {service} of {node} failed: {why}")]
    Service {
        /// The node that was asked.
        node: NodeId,
        /// The number of the service.
        service: u16,
        /// What the service said.
        why: String,
    },
    /// The node could not make its memory persistent; what is on its disk is unknown.
    #[error("{node} could not flush: {why}; check its disk before trusting it again")]
    FlushFailed {
        /// The node that was asked.
        node: NodeId,
        /// What its operating system said.
        why: String,
    },
    /// A named limit was reached.
    #[error("{what}: the limit of {limit} is reached; {remedy}")]
    Limit {
        /// What there is too much of.
        what: &'static str,
        /// How many there may be.
        limit: usize,
        /// What to do about it.
        remedy: &'static str,
    },
    /// Memory for a node could not be set up, or is not what it should be.
    #[error("{what}: {why}")]
    Setup {
        /// The step that failed.
        what: String,
        /// The cause, and what to do.
        why: String,
    },
}

/// Why a round was refused before anything was posted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// An address or a length is not a multiple of 8.
    #[error(
        "address {at:#x}, length {bytes}: far memory is made of 8-byte words, both must be multiples of 8"
    )]
    Misaligned {
        /// The address asked for.
        at: u64,
        /// The length asked for, in bytes.
        bytes: u64,
    },
    /// The verb moves no bytes.
    #[error("address {at:#x}: a READ or WRITE of no bytes")]
    Empty {
        /// The address asked for.
        at: u64,
    },
    /// More bytes than one verb may move.
    #[error("{bytes} bytes in one verb; at most {MAX_VERB_BYTES} are allowed, split it")]
    TooLarge {
        /// The length asked for, in bytes.
        bytes: u64,
    },
    /// The verb reaches beyond the node's memory.
    #[error("address {at:#x}, length {bytes} is outside of the {memory} bytes of {node}")]
    OutOfBounds {
        /// The node addressed.
        node: NodeId,
        /// The address asked for.
        at: u64,
        /// The length asked for, in bytes.
        bytes: u64,
        /// How many bytes the node has.
        memory: u64,
    },
    /// More than one round may hold.
    #[error("more than {MAX_ROUND_BYTES} bytes in one round; ring it in parts")]
    RoundTooLarge,
    /// Doorbells to more nodes than one round may have.
    #[error("doorbells to more than {MAX_ROUND_NODES} nodes in one round; ring it in parts")]
    TooManyNodes,
    /// The backend does not have this verb: ask its capabilities first.
    #[error("{node} has no {what}; ask its capabilities first")]
    Unsupported {
        /// The node addressed.
        node: NodeId,
        /// The verb asked for.
        what: &'static str,
    },
}

impl FabricError {
    /// A set-up step that failed for a reason the operating system gave.
    pub(crate) fn setup(what: impl Into<String>, why: impl std::fmt::Display) -> Self {
        FabricError::Setup { what: what.into(), why: why.to_string() }
    }
}
