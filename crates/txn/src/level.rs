//! What a transaction is promised (`farmv2.txt` §4.2).

/// How much a transaction is isolated from others. All levels read from one moment, also if they are aborted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Level {
    /// As if transactions ran one after the other, in the order in which they really did.
    #[default]
    Strict,
    /// As if they ran one after the other; but a snapshot may be of a moment shortly before the transaction began.
    Serializable,
    /// Reads from the moment at which it began, and writes only what nobody else has written since. What it has only read may
    /// have changed when it commits.
    StrictSnapshot,
    /// The same; but the snapshot may be of shortly before, and others may see what it has written only shortly after it
    /// has committed.
    Snapshot,
}

impl Level {
    /// Whatever was committed before it began is seen.
    pub(crate) fn is_strict(self) -> bool {
        matches!(self, Level::Strict | Level::StrictSnapshot)
    }

    /// What was only read must still be so at the commit.
    pub(crate) fn validates(self) -> bool {
        matches!(self, Level::Strict | Level::Serializable)
    }
}
