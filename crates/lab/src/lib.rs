//! # farside-lab: the figures of the papers, drawn again
//!
//! | room | what is in it |
//! | --- | --- |
//! | [`claims`] | what the papers say, as data |
//! | [`experiment`] | which workloads run by which protocols on which hardware, and what of it is compared |
//! | [`run`] | runs them in the simulator |
//! | [`census`], [`clocks`], [`lookups`], [`losses`], [`verbs`] | what is no run of a workload: what transactions touch, how well the time is known, addresses that are remembered, nodes that die, and bare verbs |
//! | [`verdict`] | what was measured beside what was claimed |
//! | [`report`] | one page with all of it |

pub mod census;
pub mod claims;
pub mod clocks;
pub mod experiment;
pub mod lookups;
pub mod losses;
mod measure;
pub mod report;
pub mod run;
pub mod verbs;
pub mod verdict;

pub use experiment::Experiment;
pub use run::{Curve, Outcome, Pace, Point, Series};
pub use verdict::Verdict;

/// Why an experiment could not be run.
#[derive(Debug, thiserror::Error)]
#[error("{experiment}: {why}")]
pub struct Failed {
    /// Which.
    pub experiment: String,
    /// In words.
    pub why: String,
}
