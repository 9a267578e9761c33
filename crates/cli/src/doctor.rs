//! `farside doctor`: what this machine offers each fabric, and what to do where something is missing.

use std::fs;
use std::process::ExitCode;

use crate::output::say;
use anyhow::Result;
use clap::Args;
use farside_fabric::shm::{Client, Segment};
use farside_fabric::{ClientId, NodeId, rdma};
use rustix::process::{PidfdFlags, Resource, getpid, getrlimit, pidfd_open};
use serde::Serialize;

/// Options of `farside doctor`.
#[derive(Args)]
pub(crate) struct DoctorArgs {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Check {
    fabric: &'static str,
    name: &'static str,
    status: Status,
    found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

#[derive(Serialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Status {
    /// As it should be.
    Ok,
    /// Works, but slower or with less than there could be.
    Note,
    /// The fabric cannot work so.
    Failed,
}

/// Runs `farside doctor`.
pub(crate) fn run(args: &DoctorArgs) -> Result<ExitCode> {
    let mut checks =
        vec![cores(), shared_memory(), pidfd(), huge_pages(), dax(), port(), io_uring(), memlock()];
    checks.extend(rdma_device());
    let failed = checks.iter().any(|check| check.status == Status::Failed);
    if args.json {
        say!("{}", serde_json::json!({ "ok": !failed, "checks": checks }));
    } else {
        print(&checks);
    }
    Ok(ExitCode::from(u8::from(failed)))
}

fn print(checks: &[Check]) {
    for check in checks {
        let mark = match check.status {
            Status::Ok => "ok  ",
            Status::Note => "note",
            Status::Failed => "FAIL",
        };
        say!("{mark}  {:<6} {:<15} {}", check.fabric, check.name, check.found);
        if let Some(remedy) = &check.remedy {
            say!("{:31}→ {remedy}", "");
        }
    }
}

fn check(
    fabric: &'static str,
    name: &'static str,
    status: Status,
    found: impl Into<String>,
    remedy: &str,
) -> Check {
    Check {
        fabric,
        name,
        status,
        found: found.into(),
        remedy: (status != Status::Ok && !remedy.is_empty()).then(|| remedy.to_owned()),
    }
}

fn cores() -> Check {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let status = if cores >= 2 { Status::Ok } else { Status::Note };
    check("all", "cores", status, format!("{cores}"), "give this machine at least two cores")
}

/// Does what a real process does: makes a segment, attaches, opens it by its path.
fn shared_memory() -> Check {
    let tried = Segment::in_memory(NodeId(0), 1 << 20)
        .and_then(|segment| Client::attach([Segment::open(segment.path())?], ClientId(1)));
    match tried {
        Ok(_) => check("shm", "shared memory", Status::Ok, "memfd segments work", ""),
        Err(error) => check(
            "shm",
            "shared memory",
            Status::Failed,
            error.to_string(),
            "mount /proc, and allow memfd_create in the sandbox or container that this runs in",
        ),
    }
}

fn pidfd() -> Check {
    match pidfd_open(getpid(), PidfdFlags::empty()) {
        Ok(_) => check("shm", "fencing", Status::Ok, "pidfds work", ""),
        Err(error) => check(
            "shm",
            "fencing",
            Status::Failed,
            format!("pidfd_open: {error}"),
            "use Linux 5.3 or later, and allow pidfd_open in the sandbox that this runs in",
        ),
    }
}

fn huge_pages() -> Check {
    let info = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let free = info
        .lines()
        .find_map(|line| line.strip_prefix("HugePages_Free:"))
        .and_then(|n| n.trim().parse::<u64>().ok())
        .unwrap_or(0);
    let status = if free > 0 { Status::Ok } else { Status::Note };
    let remedy = "for large memories: sysctl vm.nr_hugepages=N reserves N pages of 2 MiB";
    check("all", "huge pages", status, format!("{free} free"), remedy)
}

fn dax() -> Check {
    let devices = names_in("/dev", "dax");
    let status = if devices.is_empty() { Status::Note } else { Status::Ok };
    let found = if devices.is_empty() { "no /dev/dax device".into() } else { devices.join(", ") };
    check("shm", "DAX", status, found, "only needed for CXL or persistent memory; see daxctl(1)")
}

fn port() -> Check {
    match std::net::TcpListener::bind("127.0.0.1:0") {
        Ok(_) => check("tcp", "loopback", Status::Ok, "ports can be opened", ""),
        Err(error) => check(
            "tcp",
            "loopback",
            Status::Failed,
            error.to_string(),
            "bring up the loopback interface: ip link set lo up",
        ),
    }
}

fn io_uring() -> Check {
    let disabled = fs::read_to_string("/proc/sys/kernel/io_uring_disabled").unwrap_or_default();
    let (status, found) = match disabled.trim() {
        "0" => (Status::Ok, "enabled"),
        "" => (Status::Note, "unknown to this kernel"),
        _ => (Status::Note, "disabled"),
    };
    check(
        "tcp",
        "io_uring",
        status,
        found,
        "not needed yet; sysctl kernel.io_uring_disabled=0 enables it",
    )
}

fn memlock() -> Check {
    let limit = getrlimit(Resource::Memlock).current;
    let enough = limit.is_none_or(|bytes| bytes >= 1 << 30);
    let found = limit.map_or("unlimited".into(), |bytes| format!("{} KiB", bytes >> 10));
    let status = if enough { Status::Ok } else { Status::Note };
    let remedy = "RDMA pins memory: raise it with ulimit -l, or in /etc/security/limits.conf";
    check("rdma", "locked memory", status, found, remedy)
}

/// The steps that a client or node takes at its start. A machine without RDMA is fine, too.
fn rdma_device() -> Vec<Check> {
    let there = !names_in("/sys/class/infiniband", "").is_empty();
    let failing = if there { Status::Failed } else { Status::Note };
    let steps = rdma::checks(&rdma::Options::default()).into_iter();
    steps
        .map(|rdma::Check { step, found }| match found {
            Ok(found) => check("rdma", step, Status::Ok, found, ""),
            // The error says what to do behind its first part.
            Err(error) => {
                let text = error.to_string();
                let (why, remedy) = text.split_once("; ").unwrap_or((&text, ""));
                check("rdma", step, failing, why, remedy)
            }
        })
        .collect()
}

fn names_in(directory: &str, prefix: &str) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| name.starts_with(prefix)).collect()
}
