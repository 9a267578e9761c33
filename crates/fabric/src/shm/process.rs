//! Processes of this host: told apart beyond doubt, seen to live or to be dead, killed.

use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::clock::{boot_id, machine_id};
use crate::{FabricError, Result};

/// Names one process beyond doubt: a pid alone is given out again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ProcessName {
    pub(super) pid: u64,
    /// Clock ticks from boot to its start.
    pub(super) started: u64,
    /// A hash of the boot's id: no process survives a boot.
    pub(super) boot: u64,
    /// A hash of the machine's id, or 0: a device may be shared between machines.
    pub(super) machine: u64,
    /// The pid namespace in which `pid` counts.
    pub(super) namespace: u64,
}

/// What can be said about a process.
#[derive(Debug)]
pub(super) enum Sighting {
    /// It runs, and here is a handle that cannot come to mean another process.
    Alive(OwnedFd),
    /// It has ended, and will never run again.
    Dead,
    /// Its pid counts in another namespace, or on another machine.
    OutOfSight,
}

impl ProcessName {
    pub(super) fn of_self() -> Result<Self> {
        let pid = rustix::process::getpid();
        let about = |what: &'static str| {
            move |e| FabricError::setup(what, format!("{e}; is /proc mounted?"))
        };
        Ok(ProcessName {
            pid: pid.as_raw_pid() as u64,
            started: start_time(pid).map_err(about("reading this process's start time"))?,
            boot: boot_id().map_err(about("reading the boot id"))?,
            machine: machine_id(),
            namespace: pid_namespace().map_err(about("reading this process's pid namespace"))?,
        })
    }

    /// 24 bits that tell where its pid counts.
    pub(super) fn place(&self) -> u64 {
        let mixed = (self.boot ^ self.machine ^ self.namespace).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed >> 40
    }

    /// Looks for the process; `viewer` is this process.
    pub(super) fn look(&self, viewer: &ProcessName) -> std::io::Result<Sighting> {
        if self.machine != viewer.machine {
            return Ok(Sighting::OutOfSight);
        }
        if self.boot != viewer.boot {
            return Ok(Sighting::Dead);
        }
        if self.namespace != viewer.namespace {
            return Ok(Sighting::OutOfSight);
        }
        let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) else {
            return Ok(Sighting::Dead);
        };
        let handle = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(handle) => handle,
            Err(rustix::io::Errno::SRCH) => return Ok(Sighting::Dead),
            Err(error) => return Err(error.into()),
        };
        // The handle means one process for good; if that has another start time, it is another.
        match start_time(pid) {
            Ok(started) if started == self.started => {}
            Ok(_) => return Ok(Sighting::Dead),
            // Not being able to look is not the same as being dead.
            Err(_) if has_ended(&handle)? => return Ok(Sighting::Dead),
            Err(error) => return Err(error),
        }
        if has_ended(&handle)? {
            return Ok(Sighting::Dead);
        }
        Ok(Sighting::Alive(handle))
    }
}

/// Kills a process with SIGKILL; [`has_ended`] tells when it is gone.
pub(super) fn kill(handle: &OwnedFd) -> std::io::Result<()> {
    match pidfd_send_signal(handle, Signal::KILL) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Whether all threads of the process have ended: none of its stores can follow.
pub(super) fn has_ended(handle: &OwnedFd) -> std::io::Result<bool> {
    let mut waiting = [PollFd::new(handle, PollFlags::IN)];
    let at_once = Timespec::default();
    Ok(poll(&mut waiting, Some(&at_once))? > 0)
}

/// Field 22 of /proc/PID/stat; the second field is a name in parentheses that may hold anything.
fn start_time(pid: Pid) -> std::io::Result<u64> {
    let stat = std::fs::read(format!("/proc/{}/stat", pid.as_raw_pid()))?;
    let stat = String::from_utf8_lossy(&stat);
    let after_name = stat.rsplit_once(')').map(|(_, rest)| rest);
    after_name
        .and_then(|rest| rest.split_ascii_whitespace().nth(19))
        .and_then(|ticks| ticks.parse().ok())
        .ok_or_else(|| std::io::Error::other("a /proc/PID/stat without a start time"))
}

fn pid_namespace() -> std::io::Result<u64> {
    use std::os::unix::fs::MetadataExt;
    Ok(std::fs::metadata("/proc/self/ns/pid")?.ino())
}
