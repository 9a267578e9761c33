//! Where a database is: `mem:`, `file:PATH` (or several, a memory node each), `tcp:HOST:PORT,…`, `rdma:HOST:PORT,…`, `etcd:HOST:PORT,…/NAME`,
//! `pool:PATH` (members looked up in a file that all of them reach).

use std::path::PathBuf;
use std::time::Duration;

use farside_txn::{Limits, OldVersions};

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
            let known = match name {
                "copies" => {
                    value.parse().ok().filter(|copies| (1..=5).contains(copies)).map(|copies| {
                        parsed.copies = Some(copies);
                    })
                }
                "nodes" => {
                    value.parse().ok().filter(|nodes| (1..=64).contains(nodes)).map(|nodes| {
                        parsed.nodes = Some(nodes);
                    })
                }
                "lease" => span(value).map(|lease| parsed.lease = Some(lease)),
                "memory" => bytes(value).map(|memory| parsed.memory = Some(memory)),
                "durability" => durability(value).map(|durable| {
                    parsed.limits.durable = durable;
                    parsed.must_keep = durable;
                }),
                "old-memory" => bytes(value).map(|bytes| parsed.limits.old_bytes = bytes),
                "old-versions" => old_versions(value).map(|what| parsed.limits.old_versions = what),
                _ => None,
            };
            known.ok_or_else(|| {
                wrong(format!(
                    "'{pair}': expected copies=1 to 5, nodes=1 to 64, memory=SIZE (such as 64MiB), \
                     lease=TIME (10ms to 60s), durability=flush or none, old-memory=SIZE or \
                     old-versions=block, abort, truncate or none"
                ))
            })?;
        }
        Ok(parsed)
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

/// A time: a number with ms or s behind it, from 10 ms to a minute.
fn span(text: &str) -> Option<Duration> {
    let (number, unit) = match text.strip_suffix("ms") {
        Some(number) => (number, 1),
        None => (text.strip_suffix('s')?, 1000),
    };
    let millis = number.parse::<u64>().ok()?.checked_mul(unit)?;
    (10..=60_000).contains(&millis).then(|| Duration::from_millis(millis))
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
