//! # farside-workloads: what clusters do, and what must hold afterwards
//!
//! | room | what is in it |
//! | --- | --- |
//! | [`history`] | what attempts at transactions did and saw, as files |
//! | [`check`] | whether a history is strictly serializable and opaque, or less |
//! | [`pool`] | membership under faults, in the simulator: leases, configurations, promotion |

pub mod check;
pub mod history;
pub mod pool;
