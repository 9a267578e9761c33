//! Which RDMA device to use, and how.

use std::ffi::OsString;

use clap::Args;
use farside_fabric::rdma::Options;

/// Options of every command that uses RDMA. What is not given is found out.
#[derive(Args, Clone)]
pub(crate) struct RdmaArgs {
    /// The RDMA device, such as mlx5_0 [default: the first with an active port]
    #[arg(long, value_name = "NAME")]
    rdma_device: Option<String>,

    /// Its port, from 1 on [default: the first that is active]
    #[arg(long, value_name = "N")]
    rdma_port: Option<u8>,

    /// The entry of the port's table of addresses [default: RoCE v2 over IPv4 first]
    #[arg(long, value_name = "INDEX")]
    rdma_gid: Option<u8>,

    /// The most bytes of a packet: 256, 512, 1024, 2048 or 4096 [default: what both ends can do]
    #[arg(long, value_name = "BYTES")]
    rdma_mtu: Option<u16>,

    /// Work requests that a queue has in flight at most [default: 256]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(8..=32_768))]
    rdma_depth: Option<u32>,
}

impl RdmaArgs {
    /// As the fabric takes them.
    pub(crate) fn options(&self) -> Options {
        let usual = Options::default();
        Options {
            device: self.rdma_device.clone(),
            port: self.rdma_port,
            gid_index: self.rdma_gid,
            mtu: self.rdma_mtu,
            queue_depth: self.rdma_depth.unwrap_or(usual.queue_depth),
            ..usual
        }
    }

    /// The same options for a child process.
    pub(crate) fn for_child(&self) -> Vec<OsString> {
        let given = [
            ("--rdma-device", self.rdma_device.clone()),
            ("--rdma-port", self.rdma_port.map(|port| port.to_string())),
            ("--rdma-gid", self.rdma_gid.map(|gid| gid.to_string())),
            ("--rdma-mtu", self.rdma_mtu.map(|mtu| mtu.to_string())),
            ("--rdma-depth", self.rdma_depth.map(|depth| depth.to_string())),
        ];
        let given = given.into_iter().filter_map(|(name, value)| Some((name, value?)));
        given.flat_map(|(name, value)| [name.into(), value.into()]).collect()
    }
}
