//! Size and shape of a workload.

use clap::Args;
use farside_workloads::load::Shape;

/// What the papers vary.
#[derive(Args, Default)]
#[command(next_help_heading = "Size and shape of the workload, where it has them")]
pub(crate) struct ShapeArgs {
    /// Keys (kvs, multi-get: 1000000), lists at a time (list-append: 64), or counters (counter: 16)
    #[arg(long)]
    keys: Option<u64>,

    /// Bytes of a value (kvs, multi-get: 40)
    #[arg(long)]
    value_size: Option<usize>,

    /// How unevenly keys are chosen: 0 evenly, up to 10 (kvs: 0.99)
    #[arg(long)]
    skew: Option<f64>,

    /// How many of a hundred transactions only read (kvs: 50), or accesses (list-append: 50)
    #[arg(long)]
    read_share: Option<u64>,

    /// How many of a hundred objects a transaction only reads that writes others (kvs: 0); at least one it writes
    #[arg(long)]
    mixed: Option<u64>,

    /// Objects of a transaction (kvs: 4; list-append: up to 4; multi-get: 100 of one that reads)
    #[arg(long)]
    objects: Option<usize>,

    /// Accounts (smallbank: 100000 per thread, transfer: 1000)
    #[arg(long)]
    accounts: Option<u64>,

    /// Subscribers (tatp: 100000)
    #[arg(long)]
    subscribers: Option<u64>,
}

impl ShapeArgs {
    pub(crate) fn shape(&self, threads: usize) -> Shape {
        Shape {
            keys: self.keys,
            value_size: self.value_size,
            skew: self.skew,
            read_share: self.read_share,
            mixed: self.mixed,
            objects: self.objects,
            accounts: self.accounts,
            subscribers: self.subscribers,
            threads: threads as u64,
        }
    }
}
