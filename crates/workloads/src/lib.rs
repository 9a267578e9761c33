//! # farside-workloads: what clusters do, and what must hold afterwards
//!
//! | room | what is in it |
//! | --- | --- |
//! | [`engine`] | a store as workloads see it; the reference engine, sound and broken |
//! | [`load`] | the workloads: what is loaded, what runs, what must hold in the end |
//! | [`shapes`] | what one transaction takes, by its shape and the protocol |
//! | [`trial`] | a workload in the simulator, with its history checked |
//! | [`driver`] | runs a workload on an engine, and counts |
//! | [`history`] | what attempts at transactions did and saw, as files |
//! | [`check`] | whether a history is strictly serializable and opaque, or less |
//! | [`census`] | what transactions of a workload touch |
//! | [`clocks`] | how well many machines know the time, in the simulator |
//! | [`lookups`] | addresses that threads remember, in the simulator |
//! | [`losses`] | nodes die under load, in the simulator: clocks and commits by the millisecond |
//! | [`pool`] | membership under faults, in the simulator: leases, configurations, promotion |

pub mod census;
pub mod check;
pub mod clocks;
pub mod driver;
pub mod engine;
pub mod history;
pub mod load;
pub mod lookups;
pub mod losses;
pub mod pool;
pub mod shapes;
mod sim_connect;
pub mod trial;
