//! What transactions are promised.

use clap::ValueEnum;

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LevelArg {
    /// Strictly serializable, and opaque
    Strict,
    /// Serializable; snapshots may be of shortly before
    Serializable,
    /// Snapshot isolation, with snapshots that are up to date
    Snapshot,
    /// Snapshot isolation; snapshots may be of shortly before
    SnapshotNonstrict,
}

impl LevelArg {
    pub(crate) fn promise(self) -> farside::Level {
        match self {
            LevelArg::Strict => farside::Level::Strict,
            LevelArg::Serializable => farside::Level::Serializable,
            LevelArg::Snapshot => farside::Level::StrictSnapshot,
            LevelArg::SnapshotNonstrict => farside::Level::Snapshot,
        }
    }

    pub(crate) fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().into())
    }
}
