//! `farside bench verbs`: how fast single verbs are.

use std::io::IsTerminal;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::ValueEnum;
use farside_fabric::runtime::run_threads;
use farside_fabric::{MAX_VERB_BYTES, NodeId, local};
use farside_sim::{Faults, Profile, Sim};
use serde::{Deserialize, Serialize};

use super::BenchArgs;
use super::clients::Clients;
use super::measure::{Sample, measure};
use super::report::{Line, Report};
use crate::fabric_arg::FabricArg;

/// A verb that can be measured.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize, Debug)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verb {
    Read,
    Write,
    Cas,
    Faa,
    Flush,
}

impl Verb {
    const ALL: [Verb; 5] = [Verb::Read, Verb::Write, Verb::Cas, Verb::Faa, Verb::Flush];

    /// The sizes at which it makes sense.
    fn sizes(self, asked: &[usize]) -> Vec<usize> {
        match self {
            Verb::Read | Verb::Write => asked.to_vec(),
            Verb::Cas | Verb::Faa => vec![8],
            Verb::Flush => vec![0],
        }
    }
}

/// One line of the result: what to measure, and for how long.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Spec {
    pub(super) verb: Verb,
    pub(super) bytes: usize,
    pub(super) outstanding: u32,
    pub(super) seconds: f64,
    pub(super) rounds: Option<u64>,
    pub(super) threads: usize,
    pub(super) seed: u64,
}

/// Far memory that each thread has to itself.
pub(super) const AREA: u64 = 2 * MAX_VERB_BYTES;

/// The same where there may be hundreds of threads. Odd in lines: in real memory, too, the atomics of
/// different threads do not all share the low bits of their addresses.
const SIM_AREA: u64 = 64 * 1031;

pub(super) fn run(args: &BenchArgs) -> Result<ExitCode> {
    let specs = specs(args)?;
    ensure!(
        args.compute == 1 || args.fabric != FabricArg::Local,
        "--compute {}: the fabric 'local' has one process; use --fabric shm",
        args.compute,
    );
    let mut clients = match args.fabric {
        FabricArg::Shm => Some(Clients::on_shm(args)?),
        FabricArg::Tcp | FabricArg::Rdma => Some(Clients::on_network(args, args.node()?)?),
        FabricArg::Local | FabricArg::Sim { .. } => None,
    };
    let progress = std::io::stderr().is_terminal() && !args.json;
    let mut lines = Vec::new();
    for (number, spec) in specs.iter().enumerate() {
        if progress {
            eprint!(
                "\r  {}/{} {:?} of {} bytes …\x1b[K",
                number + 1,
                specs.len(),
                spec.verb,
                spec.bytes
            );
        }
        let samples = match (&mut clients, args.fabric.profile()) {
            (Some(clients), _) => clients.measure(spec)?,
            (None, Some(profile)) => run_simulated(profile, args.compute, spec)?,
            (None, None) => run_here(spec)?,
        };
        lines.push(Line::new(spec, &samples));
    }
    if progress {
        eprint!("\r\x1b[K");
    }
    Report::new(args, lines).print(args.json)?;
    Ok(ExitCode::SUCCESS)
}

fn specs(args: &BenchArgs) -> Result<Vec<Spec>> {
    for bytes in &args.bytes {
        let fine = *bytes > 0 && bytes.is_multiple_of(8) && *bytes as u64 <= MAX_VERB_BYTES;
        ensure!(fine, "--bytes {bytes}: expected a multiple of 8 up to {MAX_VERB_BYTES}");
        ensure!(
            args.fabric.profile().is_none() || *bytes <= 16 << 10,
            "--bytes {bytes}: at most 16384 in the simulator"
        );
    }
    let verbs = if args.verb.is_empty() { &Verb::ALL } else { args.verb.as_slice() };
    let bytes = if args.bytes.is_empty() { &[8, 64, 512, 4096] } else { args.bytes.as_slice() };
    let outstanding =
        if args.outstanding.is_empty() { &[1, 16] } else { args.outstanding.as_slice() };
    let mut specs = Vec::new();
    for verb in verbs {
        for bytes in verb.sizes(bytes) {
            specs.extend(outstanding.iter().map(|outstanding| Spec {
                verb: *verb,
                bytes,
                outstanding: *outstanding,
                seconds: 0.0,
                rounds: args.txns,
                threads: args.threads(),
                seed: args.seed,
            }));
        }
    }
    let each = args.seconds() / specs.len() as f64;
    specs.iter_mut().for_each(|spec| spec.seconds = each);
    Ok(specs)
}

/// Threads of simulated machines, on a simulated node. A thread has a queue of its own.
fn run_simulated(profile: Profile, machines: u16, spec: &Spec) -> Result<Vec<Sample>> {
    let threads = usize::from(machines) * spec.threads;
    let sim = Sim::new(profile, spec.seed, Faults::none());
    let node = sim.add_node(threads as u64 * SIM_AREA);
    let observer = sim.add_process();
    let observer = sim.add_thread(observer);
    let mut measuring = Vec::new();
    for machine in 0..usize::from(machines) {
        let process = sim.add_process();
        for thread in 0..spec.threads {
            let worker = sim.add_thread(process);
            let queue = sim.connect(process, &worker, node)?;
            let base = (machine * spec.threads + thread) as u64 * SIM_AREA;
            let (me, spec) = (worker.clone(), spec.clone());
            measuring.push(worker.spawn(async move { measure(&me, &queue, &spec, base).await }));
        }
    }
    observer.block_on(async {
        let mut samples = Vec::new();
        for thread in measuring {
            samples.push(thread.await?);
        }
        Ok(samples)
    })
}

/// All threads of this process, on a node of this process.
fn run_here(spec: &Spec) -> Result<Vec<Sample>> {
    let cluster = local::Cluster::new(1, spec.threads as u64 * AREA)?;
    let client = cluster.client();
    let samples = run_threads(spec.threads, spec.seed, |number, worker| {
        worker.block_on(async {
            let queue = client.connect(worker, NodeId(0))?;
            measure(worker, &queue, spec, number as u64 * AREA).await
        })
    });
    Ok(samples.into_iter().collect::<Result<_, _>>()?)
}
