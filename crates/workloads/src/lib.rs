//! # farside-workloads: what clusters do, and what must hold afterwards
//!
//! | room | what is in it |
//! | --- | --- |
//! | [`pool`] | membership under faults, in the simulator: leases, configurations, promotion |

pub mod pool;
