//! Which processes are attached to a segment, and which ids were fenced.
//!
//! Attaching and fencing may race. An attaching process first shows its entry and then looks whether
//! its id was fenced; a fence first notes the id and then looks for the entry. So at least one of
//! them sees the other, and no process attaches unseen behind a fence.

use super::layout::{
    FENCED, FENCED_AT, PROCESS_WORDS, PROCESSES, PROCESSES_AT, header::FENCED_CURSOR,
};
use super::process::{ProcessName, Sighting};
use crate::sync::{AtomicU64, Ordering, fence};
use crate::{ClientId, FabricError, Result};

/// Words of an entry. The first holds the stage, and with it who is in that stage: an entry is only
/// ever changed by compare-and-swap of the whole word, so that nobody takes one for another.
const STAGE: usize = 0;
const PID: usize = 1;
const STARTED: usize = 2;
const BOOT: usize = 3;
const MACHINE: usize = 4;
const NAMESPACE: usize = 5;

const FREE: u64 = 0;
const ATTACHED: u64 = 1;
const FILLING: u64 = 2;

/// The largest client id that a word can hold beside a stage.
pub(super) const MAX_CLIENT: u64 = (1 << 56) - 1;

fn attached(client: ClientId) -> u64 {
    ATTACHED | client.0 << 8
}

/// Names who fills an entry: the pid, and where that counts.
fn filling(me: &ProcessName) -> u64 {
    FILLING | me.pid << 8 | me.place() << 40
}

/// The control area's process table, as one process sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Registry<'a> {
    control: &'a [AtomicU64],
}

/// An entry of the process table that was seen attached.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry<'a> {
    words: &'a [AtomicU64],
    pub(super) client: ClientId,
    pub(super) process: ProcessName,
}

impl<'a> Registry<'a> {
    pub(super) fn new(control: &'a [AtomicU64]) -> Self {
        Registry { control }
    }

    /// Shows this process to the others, under `client`.
    pub(super) fn attach(&self, client: ClientId, me: &ProcessName) -> Result<()> {
        let words = self.claim(me).ok_or(FabricError::Limit {
            what: "processes attached to a shared segment",
            limit: PROCESSES,
            remedy: "end some of them",
        })?;
        words[PID].store(me.pid, Ordering::Relaxed);
        words[STARTED].store(me.started, Ordering::Relaxed);
        words[BOOT].store(me.boot, Ordering::Relaxed);
        words[MACHINE].store(me.machine, Ordering::Relaxed);
        words[NAMESPACE].store(me.namespace, Ordering::Relaxed);
        words[STAGE].store(attached(client), Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let shown = Entry { words, client, process: *me };
        if self.is_fenced(client) {
            shown.free();
            return Err(FabricError::Fenced(client));
        }
        // Two that attach at once see each other, and neither stays.
        if self.entries(client).count() > 1 {
            shown.free();
            return Err(FabricError::setup(
                format!("attaching as {client}"),
                "a process is attached under that id; ids are never used twice",
            ));
        }
        Ok(())
    }

    /// Takes this process's entry back.
    pub(super) fn detach(&self, client: ClientId, me: &ProcessName) {
        self.entries(client).filter(|entry| entry.process == *me).for_each(|entry| entry.free());
    }

    /// Notes that `client` is fenced, and returns its entry if it is attached.
    pub(super) fn note_fenced(&self, client: ClientId) -> Option<Entry<'a>> {
        if !self.is_fenced(client) {
            let place = self.control[FENCED_CURSOR].fetch_add(1, Ordering::Relaxed) as usize;
            self.control[FENCED_AT + place % FENCED].store(client.0, Ordering::SeqCst);
        }
        fence(Ordering::SeqCst);
        self.find(client)
    }

    pub(super) fn find(&self, client: ClientId) -> Option<Entry<'a>> {
        self.entries(client).next()
    }

    /// Whether the process attached as `client` has certainly ended, or nobody is attached so.
    pub(super) fn is_dead(&self, client: ClientId, viewer: &ProcessName) -> bool {
        match self.find(client) {
            None => true,
            Some(entry) => matches!(entry.process.look(viewer), Ok(Sighting::Dead)),
        }
    }

    fn is_fenced(&self, client: ClientId) -> bool {
        let fenced = &self.control[FENCED_AT..FENCED_AT + FENCED];
        fenced.iter().any(|id| id.load(Ordering::SeqCst) == client.0)
    }

    /// An entry to fill: a free one, or else one whose process has died.
    fn claim(&self, me: &ProcessName) -> Option<&'a [AtomicU64]> {
        let free = self.slots().find(|words| step(words, FREE, filling(me)));
        free.or_else(|| {
            self.slots().find(|words| {
                let stage = words[STAGE].load(Ordering::Acquire);
                is_left_behind(words, stage, me) && step(words, stage, filling(me))
            })
        })
    }

    fn slots(&self) -> impl Iterator<Item = &'a [AtomicU64]> + use<'a> {
        self.control[PROCESSES_AT..PROCESSES_AT + PROCESSES * PROCESS_WORDS]
            .chunks_exact(PROCESS_WORDS)
    }

    /// The entries of a client: one, or for a moment two that exclude each other.
    fn entries(&self, client: ClientId) -> impl Iterator<Item = Entry<'a>> + use<'a> {
        let there =
            move |words: &[AtomicU64]| words[STAGE].load(Ordering::SeqCst) == attached(client);
        self.slots().filter_map(move |words| {
            if !there(words) {
                return None;
            }
            let process = name_in(words);
            fence(Ordering::Acquire);
            // Still the same, so the name is its.
            there(words).then_some(Entry { words, client, process })
        })
    }
}

impl Entry<'_> {
    /// Frees the entry of a process that was seen dead, or of this process.
    pub(super) fn free(&self) {
        step(self.words, attached(self.client), FREE);
    }
}

fn step(words: &[AtomicU64], from: u64, to: u64) -> bool {
    let (ok, failed) = (Ordering::AcqRel, Ordering::Relaxed);
    words[STAGE].compare_exchange(from, to, ok, failed).is_ok()
}

fn name_in(words: &[AtomicU64]) -> ProcessName {
    ProcessName {
        pid: words[PID].load(Ordering::Relaxed),
        started: words[STARTED].load(Ordering::Relaxed),
        boot: words[BOOT].load(Ordering::Relaxed),
        machine: words[MACHINE].load(Ordering::Relaxed),
        namespace: words[NAMESPACE].load(Ordering::Relaxed),
    }
}

fn is_left_behind(words: &[AtomicU64], stage: u64, viewer: &ProcessName) -> bool {
    if stage & 0xff == ATTACHED {
        return matches!(name_in(words).look(viewer), Ok(Sighting::Dead));
    }
    // Died while it filled the entry: only its pid is known, and only where pids mean the same
    // here. A reused pid keeps the entry for longer than need be, which is safe.
    let pid = i32::try_from(stage >> 8 & 0xffff_ffff).ok().and_then(rustix::process::Pid::from_raw);
    stage >> 40 == viewer.place()
        && pid.is_some_and(|pid| {
            rustix::process::test_kill_process(pid) == Err(rustix::io::Errno::SRCH)
        })
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::super::layout::CALLS_AT;
    use super::*;
    use loom::sync::Arc;

    const LATE: ClientId = ClientId(7);
    const ME: ProcessName = ProcessName { pid: 1, started: 1, boot: 1, machine: 1, namespace: 1 };

    #[test]
    fn nobody_attaches_unseen_behind_a_fence() {
        loom::model(|| {
            let control: Arc<Vec<AtomicU64>> =
                Arc::new((0..CALLS_AT).map(|_| AtomicU64::new(0)).collect());
            let other = Arc::clone(&control);
            let fence =
                loom::thread::spawn(move || Registry::new(&other).note_fenced(LATE).is_some());
            let attached = Registry::new(&control).attach(LATE, &ME).is_ok();
            let seen = fence.join().unwrap();
            assert!(seen || !attached, "attached, and the fence did not see it");
        });
    }
}
