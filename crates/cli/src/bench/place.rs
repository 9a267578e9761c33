//! Where the database of a benchmark is: memory of this process, shared memory, or memory node processes.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Result, bail, ensure};
use farside::{Database, Options};
use farside_fabric::NodeId;
use farside_fabric::shm::Segment;
use farside_workloads::engine::TableShape;

use super::BenchArgs;
use crate::durability::Durability;
use crate::fabric_arg::FabricArg;
use crate::node_process::{self, Running};

/// A database, and what it lives in.
pub(super) struct Place {
    pub(super) db: Database,
    _segments: Vec<Segment>,
    _nodes: Vec<Running>,
    _journals: Option<Scratch>,
}

/// A directory that is gone when this is.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        Scratch(std::env::temp_dir().join(format!("farside-bench-{}", std::process::id())))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Place {
    /// Opens a running cluster, or starts one that has room for these tables.
    pub(super) fn new(args: &BenchArgs, tables: &[TableShape]) -> Result<Self> {
        let options = Options { network: args.credentials.options()?, ..Options::default() };
        let (mut segments, mut nodes) = (Vec::new(), Vec::new());
        if let Some(url) = &args.connect {
            let db = Database::open_with(url, &options)?;
            return Ok(Place { db, _segments: segments, _nodes: nodes, _journals: None });
        }
        let (copies, count) = (args.replicas, args.nodes.unwrap_or(args.replicas));
        ensure!(count >= copies, "--nodes {count}: {copies} replicas need as many nodes");
        let room = TableShape::room(tables, args.threads());
        let per_node = room * u64::from(copies) / u64::from(count);
        let per_node = per_node.next_multiple_of(1 << 20);
        let journals = (args.durability == Durability::Flush).then(Scratch::new);
        let url = match args.fabric {
            FabricArg::Local => {
                format!("mem:?copies={copies}&nodes={count}&memory={}", per_node * u64::from(count))
            }
            FabricArg::Shm => {
                for number in 0..count {
                    segments.push(Segment::in_memory(NodeId(number), per_node)?);
                }
                let paths: Vec<_> =
                    segments.iter().map(|segment| segment.path().display().to_string()).collect();
                format!("file:{}?copies={copies}", paths.join(","))
            }
            FabricArg::Tcp | FabricArg::Rdma => {
                let mut addresses = Vec::new();
                for number in 0..count {
                    let fabric = args.fabric.to_string();
                    let mut more = args.rdma.for_child();
                    if let Some(Scratch(path)) = &journals {
                        let path = path.join(number.to_string());
                        more.extend([OsString::from("--data"), path.into()]);
                    }
                    let (node, address) = node_process::start(&fabric, per_node, &more)?;
                    nodes.push(node);
                    addresses.push(address);
                }
                let durability = if journals.is_some() { "flush" } else { "none" };
                let (fabric, all) = (&args.fabric, addresses.join(","));
                format!("{fabric}:{all}?copies={copies}&durability={durability}")
            }
            FabricArg::Sim { .. } => bail!("a simulated cluster is not opened by its URL"),
        };
        let techniques = args.without.iter().map(|part| format!("-without-{}", part.0.name()));
        let without: String = techniques.collect();
        let url = format!("{url}&protocol={}{without}", args.protocol.name());
        let db = Database::open_with(&url, &options)?;
        Ok(Place { db, _segments: segments, _nodes: nodes, _journals: journals })
    }
}
