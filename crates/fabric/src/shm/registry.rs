//! Which processes are attached to a segment, and which ids were fenced.
//!
//! Attaching and fencing may race. An attaching process first shows its entry and then looks whether
//! its id was fenced; a fence first notes the id and then looks for the entry. So at least one of
//! them sees the other, and no process attaches unseen behind a fence.

use super::layout::{
    FENCED, FENCED_AT, PROCESS_WORDS, PROCESSES, PROCESSES_AT, header::FENCED_CURSOR,
};
use super::process::{ProcessName, Sighting};
use crate::sync::{AtomicU64, Ordering};
use crate::{ClientId, FabricError, Result};

/// Words of an entry. The first holds the stage; while an entry is being filled or freed it also
/// holds the pid of who does it, so that others can finish when that one dies.
const STAGE: usize = 0;
const CLIENT: usize = 1;
const PID: usize = 2;
const STARTED: usize = 3;
const BOOT: usize = 4;
const NAMESPACE: usize = 5;

const FREE: u64 = 0;
const ATTACHED: u64 = 1;
const CHANGING: u64 = 2;

fn changing_by(pid: u64) -> u64 {
    CHANGING | pid << 8
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
        if self.find(client).is_some() {
            return Err(FabricError::setup(
                format!("attaching as {client}"),
                "a process is attached under that id; ids are never used twice",
            ));
        }
        let words = self.claim(me).ok_or(FabricError::Limit {
            what: "processes attached to a shared segment",
            limit: PROCESSES,
            remedy: "end some of them",
        })?;
        words[CLIENT].store(client.0, Ordering::Relaxed);
        words[PID].store(me.pid, Ordering::Relaxed);
        words[STARTED].store(me.started, Ordering::Relaxed);
        words[BOOT].store(me.boot, Ordering::Relaxed);
        words[NAMESPACE].store(me.namespace, Ordering::Relaxed);
        words[STAGE].store(ATTACHED, Ordering::SeqCst);
        crate::sync::fence(Ordering::SeqCst);
        if self.is_fenced(client) {
            words[STAGE].store(FREE, Ordering::Release);
            return Err(FabricError::Fenced(client));
        }
        Ok(())
    }

    /// Takes this process's entry back.
    pub(super) fn detach(&self, client: ClientId) {
        if let Some(entry) = self.find(client) {
            entry.words[STAGE].store(FREE, Ordering::Release);
        }
    }

    /// Notes that `client` is fenced, and returns its entry if it is attached.
    pub(super) fn note_fenced(&self, client: ClientId) -> Option<Entry<'a>> {
        let place = self.control[FENCED_CURSOR].fetch_add(1, Ordering::Relaxed) as usize % FENCED;
        self.control[FENCED_AT + place].store(client.0, Ordering::SeqCst);
        crate::sync::fence(Ordering::SeqCst);
        self.find(client)
    }

    pub(super) fn find(&self, client: ClientId) -> Option<Entry<'a>> {
        self.entries().find(|entry| entry.client == client)
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
        let mine = changing_by(me.pid);
        let take = |words: &&[AtomicU64], from: u64| {
            let (ok, failed) = (Ordering::AcqRel, Ordering::Relaxed);
            words[STAGE].compare_exchange(from, mine, ok, failed).is_ok()
        };
        let free = self.slots().find(|words| take(words, FREE));
        free.or_else(|| {
            self.slots().find(|words| {
                let stage = words[STAGE].load(Ordering::Acquire);
                is_left_behind(words, stage, me) && take(words, stage)
            })
        })
    }

    fn slots(&self) -> impl Iterator<Item = &'a [AtomicU64]> + use<'a> {
        self.control[PROCESSES_AT..PROCESSES_AT + PROCESSES * PROCESS_WORDS]
            .chunks_exact(PROCESS_WORDS)
    }

    fn entries(&self) -> impl Iterator<Item = Entry<'a>> + use<'a> {
        let attached = |words: &&[AtomicU64]| words[STAGE].load(Ordering::SeqCst) == ATTACHED;
        self.slots().filter(attached).map(|words| Entry {
            words,
            client: ClientId(words[CLIENT].load(Ordering::Relaxed)),
            process: name_in(words),
        })
    }
}

impl Entry<'_> {
    /// Frees the entry of a process that was seen dead.
    pub(super) fn free(&self) {
        let still_its = self.words[CLIENT].load(Ordering::Relaxed) == self.client.0;
        if still_its {
            let (ok, failed) = (Ordering::AcqRel, Ordering::Relaxed);
            let _ = self.words[STAGE].compare_exchange(ATTACHED, FREE, ok, failed);
        }
    }
}

fn name_in(words: &[AtomicU64]) -> ProcessName {
    ProcessName {
        pid: words[PID].load(Ordering::Relaxed),
        started: words[STARTED].load(Ordering::Relaxed),
        boot: words[BOOT].load(Ordering::Relaxed),
        namespace: words[NAMESPACE].load(Ordering::Relaxed),
    }
}

fn is_left_behind(words: &[AtomicU64], stage: u64, viewer: &ProcessName) -> bool {
    if stage == ATTACHED {
        return matches!(name_in(words).look(viewer), Ok(Sighting::Dead));
    }
    // Died while it filled the entry: only its pid is known, so a reused pid keeps the entry for
    // longer than need be, which is safe.
    let pid = i32::try_from(stage >> 8).ok().and_then(rustix::process::Pid::from_raw);
    pid.is_some_and(|pid| rustix::process::test_kill_process(pid) == Err(rustix::io::Errno::SRCH))
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::super::layout::CALLS_AT;
    use super::*;
    use loom::sync::Arc;

    const LATE: ClientId = ClientId(7);
    const ME: ProcessName = ProcessName { pid: 1, started: 1, boot: 1, namespace: 1 };

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
