//! Transactions on a pool of real processes over TCP with a real etcd, whose nodes and clients are killed, stopped, drained and
//! replaced. `FARSIDE_LEASE_MS=10` measures with short leases (other tests use the machine, too); `FARSIDE_SOAK_SECONDS=1800`
//! goes on for longer.

mod client;
mod cluster;
#[path = "../../../pool/tests/common/mod.rs"]
mod common;
mod kills;
#[path = "../common/node_process.rs"]
mod node_process;
mod soak;
