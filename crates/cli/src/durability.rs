//! What a commit survives.

use clap::ValueEnum;

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Durability {
    /// The death of processes, and of nodes as long as there are copies
    None,
    /// The loss of power, too
    Flush,
}
