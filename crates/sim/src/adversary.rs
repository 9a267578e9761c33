//! The adversary: which faults are on, how often they strike, and how often they did.

use std::str::FromStr;

/// A kind of fault. What each may do stands in the crate's table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
pub enum FaultKind {
    /// READs and atomics take effect late, and later verbs overtake them where C1 permits.
    Reorder,
    /// READs and WRITEs of several words tear.
    Tear,
    /// Doorbells are under way for long.
    Delay,
    /// Doorbells fail, with unknown effect.
    Error,
    /// Processes stop for a while.
    Pause,
    /// Processes die.
    Kill,
    /// Memory nodes stop for a while.
    NodePause,
    /// Memory nodes die; persistent ones lose what was not flushed.
    NodeCrash,
    /// The network is cut between a process and a node.
    Partition,
    /// Clocks have offsets and drift.
    Clock,
}

impl FaultKind {
    /// All kinds.
    pub const ALL: [FaultKind; 10] = [
        FaultKind::Reorder,
        FaultKind::Tear,
        FaultKind::Delay,
        FaultKind::Error,
        FaultKind::Pause,
        FaultKind::Kill,
        FaultKind::NodePause,
        FaultKind::NodeCrash,
        FaultKind::Partition,
        FaultKind::Clock,
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            FaultKind::Reorder => "reorder",
            FaultKind::Tear => "tear",
            FaultKind::Delay => "delay",
            FaultKind::Error => "error",
            FaultKind::Pause => "pause",
            FaultKind::Kill => "kill",
            FaultKind::NodePause => "node-pause",
            FaultKind::NodeCrash => "node-crash",
            FaultKind::Partition => "partition",
            FaultKind::Clock => "clock",
        }
    }

    /// How often it strikes where nothing else is said: in a million opportunities. An opportunity
    /// is a verb or doorbell for the first four, and a look of the adversary every
    /// [`LOOK`](crate::event::LOOK) for those that strike machines.
    fn usual(self) -> u32 {
        match self {
            FaultKind::Reorder => 200_000,
            FaultKind::Tear => 250_000,
            FaultKind::Delay => 30_000,
            FaultKind::Error => 300,
            FaultKind::Pause => 20_000,
            FaultKind::Kill => 10_000,
            FaultKind::NodePause => 10_000,
            FaultKind::NodeCrash => 5_000,
            FaultKind::Partition => 10_000,
            FaultKind::Clock => 1_000_000,
        }
    }
}

/// Which faults are on, and how often they strike.
///
/// As text: `none`, `all`, or kinds with commas between, each perhaps with how often in a million
/// opportunities: `tear,delay=50000`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Faults {
    per_million: [u32; FaultKind::ALL.len()],
}

impl Faults {
    /// No faults: everything takes effect in order, at once and whole.
    pub fn none() -> Self {
        Faults { per_million: [0; FaultKind::ALL.len()] }
    }

    /// All kinds, as often as usual.
    pub fn all() -> Self {
        FaultKind::ALL.into_iter().fold(Faults::none(), Faults::with)
    }

    /// What C1–C3 leave open, but nobody dies and nothing fails.
    pub fn order() -> Self {
        Faults::none().with(FaultKind::Reorder).with(FaultKind::Tear).with(FaultKind::Delay)
    }

    /// With this kind as often as usual.
    pub fn with(self, kind: FaultKind) -> Self {
        self.with_rate(kind, kind.usual())
    }

    /// With this kind so often in a million opportunities.
    pub fn with_rate(mut self, kind: FaultKind, per_million: u32) -> Self {
        self.per_million[kind as usize] = per_million.min(1_000_000);
        self
    }

    /// Without this kind.
    pub fn without(self, kind: FaultKind) -> Self {
        self.with_rate(kind, 0)
    }

    /// How often it strikes, in a million opportunities.
    pub fn rate(&self, kind: FaultKind) -> u32 {
        self.per_million[kind as usize]
    }

    /// The kinds that are on.
    pub fn kinds(&self) -> impl Iterator<Item = FaultKind> {
        FaultKind::ALL.into_iter().filter(|kind| self.rate(*kind) > 0)
    }

    /// Whether effects must be followed one by one, because something may come between.
    pub(crate) fn splits_effects(&self) -> bool {
        self.rate(FaultKind::Reorder) > 0
            || self.rate(FaultKind::Tear) > 0
            || self.strikes_machines()
    }

    /// Whether processes, nodes or the network are struck.
    pub fn strikes_machines(&self) -> bool {
        use FaultKind::{Kill, NodeCrash, NodePause, Partition, Pause};
        [Pause, Kill, NodePause, NodeCrash, Partition].iter().any(|kind| self.rate(*kind) > 0)
    }
}

impl FromStr for Faults {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" | "" => return Ok(Faults::none()),
            "all" => return Ok(Faults::all()),
            _ => {}
        }
        text.split(',').try_fold(Faults::none(), |faults, part| {
            let (name, rate) = part.split_once('=').map_or((part, None), |(n, r)| (n, Some(r)));
            let kind =
                FaultKind::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(|| {
                    let names: Vec<_> = FaultKind::ALL.iter().map(|kind| kind.name()).collect();
                    format!("no fault '{name}'; there are: none, all, {}", names.join(", "))
                })?;
            let rate = match rate {
                None => kind.usual(),
                Some(rate) => {
                    rate.parse().ok().filter(|rate| *rate <= 1_000_000).ok_or_else(|| {
                        format!("'{part}': expected how often in a million, 0 to 1000000")
                    })?
                }
            };
            Ok(faults.with_rate(kind, rate))
        })
    }
}

impl std::fmt::Display for Faults {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if *self == Faults::none() {
            return f.write_str("none");
        }
        if *self == Faults::all() {
            return f.write_str("all");
        }
        let parts: Vec<_> = self
            .kinds()
            .map(|kind| match self.rate(kind) {
                rate if rate == kind.usual() => kind.name().to_owned(),
                rate => format!("{}={rate}", kind.name()),
            })
            .collect();
        f.write_str(&parts.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_read_as_they_are_written() {
        for text in ["none", "all", "tear", "tear,delay", "tear=5,kill"] {
            assert_eq!(text.parse::<Faults>().unwrap().to_string(), text);
        }
        assert!(
            "tear,flood".parse::<Faults>().unwrap_err().contains("there are: none, all, reorder")
        );
        assert!("tear=2000000".parse::<Faults>().is_err());
        assert!("tear=x".parse::<Faults>().is_err());
    }
}
