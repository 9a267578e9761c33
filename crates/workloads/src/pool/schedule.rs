//! Which fault strikes when.

use farside_fabric::runtime::Random;

/// Something that happens to the pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// A machine dies, with its memory, and comes back after a while.
    KillMachine,
    /// A machine dies and is back before its lease has ended.
    RestartMachine,
    /// A machine's CPU dies; its NIC still answers.
    KillKeeper,
    /// A machine stops for a while.
    PauseMachine,
    /// A machine is cut off from all others, and perhaps from the store.
    IsolateMachine,
    /// A client dies, and another comes.
    KillClient,
    /// A client stops for a while.
    PauseClient,
    /// A client is cut off from a machine.
    CutClient,
    /// The store answers nobody for a while.
    StoreAway,
    /// The store is slow for a while.
    StoreSlow,
    /// Somebody asks for a machine to leave; it comes back as a new member.
    Drain,
}

/// All of them, by name.
pub const KINDS: [(Event, &str); 11] = [
    (Event::KillMachine, "kill-machine"),
    (Event::RestartMachine, "restart-machine"),
    (Event::KillKeeper, "kill-keeper"),
    (Event::PauseMachine, "pause-machine"),
    (Event::IsolateMachine, "isolate-machine"),
    (Event::KillClient, "kill-client"),
    (Event::PauseClient, "pause-client"),
    (Event::CutClient, "cut-client"),
    (Event::StoreAway, "store-away"),
    (Event::StoreSlow, "store-slow"),
    (Event::Drain, "drain"),
];

impl Event {
    /// Its name.
    pub fn name(self) -> &'static str {
        KINDS.iter().find(|(event, _)| *event == self).map_or("", |(_, name)| name)
    }

    pub(super) fn any(random: &mut Random) -> Self {
        KINDS[random.below(KINDS.len() as u64) as usize].0
    }
}
