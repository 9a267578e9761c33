//! Beds of the backends.

mod local;
mod process;
mod proxy;
mod shm;
mod sim;
mod tcp;

pub use local::LocalBed;
pub use process::{ACTOR, act, start as start_process};
pub use proxy::{PROXY, Proxy, be_proxy};
pub use shm::ShmBed;
pub use sim::SimBed;
pub use tcp::{NODE, Network, NodeProcess, TcpBed, be_node};

use anyhow::{Result, bail};
use farside_sim::Faults;

use crate::bed::Bed;

/// The backends that have a bed.
pub const FABRICS: &[&str] = &["local", "shm", "tcp", "rdma", "sim:PROFILE"];

/// A fresh bed of a backend. `program` is an actor when its first argument is [`ACTOR`], and a memory
/// node when it is [`NODE`].
pub fn fresh(fabric: &str, program: &std::path::Path) -> Result<Box<dyn Bed>> {
    Ok(match fabric {
        "local" => Box::new(LocalBed::new()?),
        "shm" => Box::new(ShmBed::new(program)?),
        "tcp" => Box::new(TcpBed::new(program, Network::Tcp)?),
        "rdma" => Box::new(TcpBed::new(program, Network::Rdma)?),
        sim if sim.starts_with("sim:") => {
            Box::new(SimBed::new(&sim["sim:".len()..], 1, Faults::order())?)
        }
        other => bail!("no fabric '{other}'; there are: {}", FABRICS.join(", ")),
    })
}
