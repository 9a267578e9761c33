//! Where a database is: `mem:`, `file:PATH` (or several, a memory node each), `tcp:HOST:PORT,…`, `rdma:HOST:PORT,…`, `etcd:HOST:PORT,…/NAME`,
//! `pool:PATH` (members looked up in a file that all of them reach).

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use farside_txn::protocol::Flush;
use farside_txn::{Limits, OldVersions, Protocol, Versions};

use crate::{Error, Result};

/// A URL, taken apart.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Url {
    pub(crate) place: Place,
    /// Copies of everything, if the URL says so.
    pub(crate) copies: Option<usize>,
    /// Bytes of memory, if the URL says so.
    pub(crate) memory: Option<u64>,
    /// Memory nodes, if the URL says so.
    pub(crate) nodes: Option<u16>,
    /// How long a process may be silent, if the URL says so.
    pub(crate) lease: Option<Duration>,
    /// How much is kept of the past, and what happens when that is not enough.
    pub(crate) limits: Limits,
    /// It is an error if nodes do not keep what is flushed.
    pub(crate) must_keep: bool,
}

/// What kind of place it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    Memory,
    Files(Vec<PathBuf>),
    /// Addresses as the pool has them: HOST:PORT, or rdma:HOST:PORT.
    Nodes(Vec<String>),
    /// The URL of a config store.
    Pool(String),
}

const EXPECTED: &str = "expected mem:, file:PATH, tcp:HOST:PORT,HOST:PORT, rdma:HOST:PORT, etcd:HOST:PORT/NAME or pool:PATH, \
                        and perhaps ?copies=N&memory=SIZE";

impl Url {
    pub(crate) fn parse(url: &str) -> Result<Self> {
        let wrong = |why: String| Error::Open { url: url.into(), why };
        let (main, query) = url.split_once('?').unwrap_or((url, ""));
        let place = match main.split_once(':') {
            Some(("mem", "")) => Place::Memory,
            Some(("file", paths)) if paths.split(',').all(|path| !path.is_empty()) => {
                Place::Files(paths.split(',').map(PathBuf::from).collect())
            }
            Some((network @ ("tcp" | "rdma"), nodes)) => {
                let prefix = if network == "rdma" { "rdma:" } else { "" };
                let nodes: Vec<String> = nodes.split(',').map(str::to_owned).collect();
                if let Some(node) = nodes.iter().find(|node| !is_address(node)) {
                    return Err(wrong(format!("'{node}' is not HOST:PORT; {EXPECTED}")));
                }
                Place::Nodes(nodes.iter().map(|node| format!("{prefix}{node}")).collect())
            }
            Some(("etcd", _)) => Place::Pool(main.into()),
            Some(("pool", path)) if !path.is_empty() => Place::Pool(main.into()),
            Some(("sim", _)) => {
                return Err(wrong(
                    "a simulated cluster is for `farside sim` and `farside bench --fabric`".into(),
                ));
            }
            _ => return Err(wrong(EXPECTED.into())),
        };
        let limits = Limits::default();
        let mut parsed = Url {
            place,
            copies: None,
            memory: None,
            nodes: None,
            lease: None,
            limits,
            must_keep: false,
        };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let known = parsed.set(name, value);
            known.ok_or_else(|| {
                wrong(format!(
                    "'{pair}': expected copies=1 to 5, nodes=1 to 64, memory=SIZE (such as 64MiB), \
                     lease=TIME (10ms to 60s), durability=flush or none, old-memory=SIZE, \
                     old-versions=block, abort, truncate or none, scrub=TIME or off, or \
                     protocol=NAME (farside, ford, farm, drtm-h; mem: also farside-lv, ford-lv), perhaps without a \
                     technique that it has (ford-without-backup-reads)"
                ))
            })?;
        }
        let phases = &mut parsed.limits.protocol;
        if phases.versions == Versions::Process && parsed.place != Place::Memory {
            return Err(wrong(format!(
                "protocol={}: a version cache of a process is sound only where no other one writes; expected mem:, \
                 {0}-without-version-cache, or ford-lv-node in a pool that has a node for versions",
                phases.name
            )));
        }
        // Nodes come back with what they have kept.
        if phases.flush == Flush::Backups && parsed.place != Place::Memory {
            phases.flush = Flush::Nodes;
        }
        Ok(parsed)
    }

    /// An option behind the `?`; `None` if there is no such one, or it is wrong.
    fn set(&mut self, name: &str, value: &str) -> Option<()> {
        match name {
            "copies" => {
                value.parse().ok().filter(|copies| (1..=5).contains(copies)).map(|copies| {
                    self.copies = Some(copies);
                })
            }
            "nodes" => value.parse().ok().filter(|nodes| (1..=64).contains(nodes)).map(|nodes| {
                self.nodes = Some(nodes);
            }),
            "lease" => time(value)
                .filter(|lease| LEASES.contains(lease))
                .map(|lease| self.lease = Some(lease)),
            "memory" => bytes(value).map(|memory| self.memory = Some(memory)),
            "durability" => durability(value).map(|durable| {
                self.limits.durable = durable;
                self.must_keep = durable;
            }),
            "old-memory" => bytes(value).map(|bytes| self.limits.old_bytes = bytes),
            "old-versions" => old_versions(value).map(|what| self.limits.old_versions = what),
            "scrub" => scrub(value).map(|every| self.limits.scrub = every),
            "protocol" => {
                Protocol::spelled(value).map(|it| self.limits = self.limits.following(it))
            }
            _ => None,
        }
    }
}

fn is_address(address: &str) -> bool {
    let port = |port: &str| port.parse::<u16>().is_ok_and(|port| port > 0);
    address.rsplit_once(':').is_some_and(|(host, at)| !host.is_empty() && port(at))
}

/// A size: a number, with KiB, MiB or GiB behind it or not.
fn bytes(text: &str) -> Option<u64> {
    let (number, unit) =
        text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let shift = match unit {
        "" | "B" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// Whether commits are flushed.
fn durability(text: &str) -> Option<bool> {
    match text {
        "flush" => Some(true),
        "none" => Some(false),
        _ => None,
    }
}

/// What happens when old versions take all the memory that they may have.
fn old_versions(text: &str) -> Option<OldVersions> {
    Some(match text {
        "block" => OldVersions::Block,
        "abort" => OldVersions::Abort,
        "truncate" => OldVersions::Truncate,
        "none" => OldVersions::None,
        _ => return None,
    })
}

/// How often, or never.
fn scrub(text: &str) -> Option<Option<Duration>> {
    if text == "off" { Some(None) } else { time(text).map(Some) }
}

/// Leases are as long as this.
const LEASES: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_secs(60);

/// A time: a number with ms, s, min or h behind it, from 10 ms on.
fn time(text: &str) -> Option<Duration> {
    let (number, unit) =
        text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let unit = match unit {
        "ms" => 1,
        "s" => 1000,
        "min" => 60_000,
        "h" => 3_600_000,
        _ => return None,
    };
    let millis = number.parse::<u64>().ok()?.checked_mul(unit)?;
    (10..=1 << 40).contains(&millis).then(|| Duration::from_millis(millis))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart_and_wrong_ones_say_what_was_expected() {
        let parsed = Url::parse("mem:?copies=3&memory=64MiB").unwrap();
        assert_eq!((parsed.copies, parsed.memory), (Some(3), Some(64 << 20)));
        let parsed = Url::parse("tcp:a:1,b:2").unwrap();
        assert_eq!(parsed.place, Place::Nodes(vec!["a:1".into(), "b:2".into()]));
        let parsed = Url::parse("rdma:a:1").unwrap();
        assert_eq!(parsed.place, Place::Nodes(vec!["rdma:a:1".into()]));
        assert_eq!(Url::parse("pool:/tmp/x").unwrap().place, Place::Pool("pool:/tmp/x".into()));
        let files = Place::Files(vec!["/tmp/x".into(), "y".into()]);
        assert_eq!(Url::parse("file:/tmp/x,y").unwrap().place, files);
        for wrong in [
            "", "mem", "mem:x", "file:", "pool:", "tcp:", "tcp:a", "tcp:a:0", "http://x", "sim:cxl",
        ] {
            assert!(Url::parse(wrong).is_err(), "{wrong}");
        }
        let old = Url::parse("mem:?old-versions=truncate&old-memory=1MiB").unwrap().limits;
        assert_eq!((old.old_versions, old.old_bytes), (OldVersions::Truncate, 1 << 20));
        assert!(Url::parse("mem:?old-versions=some").is_err());
        let protocol = |text: &str| {
            Url::parse(&format!("{text}protocol=ford-without-backup-reads"))
                .unwrap()
                .limits
                .protocol
        };
        assert!(!protocol("mem:?").backup_reads);
        assert_eq!(protocol("mem:?").flush, Flush::Backups);
        assert_eq!(protocol("tcp:localhost:1?").flush, Flush::Nodes, "they come back");
        assert!(Url::parse("mem:?protocol=ford-lv").is_ok());
        assert!(Url::parse("tcp:localhost:1?protocol=ford-lv").is_err());
        assert!(Url::parse("mem:?protocol=farm-without-hitchhiked-locking").is_err());
        let scrub = |text: &str| Url::parse(&format!("mem:?scrub={text}")).ok();
        assert_eq!(scrub("2h").unwrap().limits.scrub, Some(Duration::from_secs(7200)));
        assert_eq!(scrub("off").unwrap().limits.scrub, None);
        assert!(scrub("often").is_none() && Url::parse("mem:?lease=2h").is_err());
        let leases =
            ["file:x?lease=20ms", "file:x?lease=2s"].map(|url| Url::parse(url).unwrap().lease);
        assert_eq!(leases, [20, 2000].map(|millis| Some(Duration::from_millis(millis))));
        for wrong in [
            "mem:?lease=1ms",
            "mem:?lease=9",
            "mem:?copies=0",
            "mem:?copies=9",
            "mem:?memory=1TB",
            "mem:?colour=red",
        ] {
            let said = Url::parse(wrong).unwrap_err().to_string();
            assert!(said.contains("expected copies"), "{said}");
        }
    }
}
