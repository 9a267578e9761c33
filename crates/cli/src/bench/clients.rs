//! Client processes of a benchmark on shared memory: started, told what to measure, and ended by the
//! process that has the memory node.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};

use anyhow::{Context, Result, ensure};
use clap::Args;
use farside_fabric::runtime::run_threads;
use farside_fabric::shm::{Client, Segment};
use farside_fabric::{ClientId, NodeId};

use super::measure::{Sample, measure};
use super::verbs::{AREA, Spec};

/// Options of a client process.
#[derive(Args)]
pub(crate) struct ClientArgs {
    /// The segment to open
    #[arg(long)]
    segment: PathBuf,

    /// The number of this process, from 1 on
    #[arg(long)]
    number: u64,
}

/// The processes, and the node that they use.
pub(super) struct Clients {
    processes: Vec<Process>,
    _segment: Segment,
}

struct Process {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Clients {
    /// Makes a memory node, and starts the processes.
    pub(super) fn start(processes: u16, threads: usize) -> Result<Self> {
        let segment = Segment::in_memory(NodeId(0), u64::from(processes) * threads as u64 * AREA)?;
        let program = std::env::current_exe().context("finding this program")?;
        let processes = (1..=processes)
            .map(|number| {
                let mut child = Command::new(&program)
                    .arg("bench-client")
                    .arg("--segment")
                    .arg(segment.path())
                    .args(["--number", &number.to_string()])
                    .stdin(Stdio::piped())
                    .stdout(Stdio::piped())
                    .spawn()
                    .context("starting a client process")?;
                Ok(Process {
                    orders: child.stdin.take().expect("piped"),
                    answers: BufReader::new(child.stdout.take().expect("piped")),
                    child,
                })
            })
            .collect::<Result<_>>()?;
        Ok(Clients { processes, _segment: segment })
    }

    /// Measures on all processes at once.
    pub(super) fn measure(&mut self, spec: &Spec) -> Result<Vec<Sample>> {
        let order = serde_json::to_string(spec)?;
        for process in &mut self.processes {
            writeln!(process.orders, "{order}").context("a client process has ended")?;
        }
        let mut samples = Vec::new();
        for process in &mut self.processes {
            let mut answer = String::new();
            process.answers.read_line(&mut answer)?;
            ensure!(!answer.is_empty(), "a client process has ended");
            let answer: Vec<Sample> = serde_json::from_str(&answer)?;
            samples.extend(answer);
        }
        Ok(samples)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The whole life of a client process: one order a line, until there are no more.
pub(crate) fn run_client(args: &ClientArgs) -> Result<ExitCode> {
    // Whatever becomes of the parent, this process does not outlive it.
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    let segment = Segment::open(&args.segment)?;
    let client = Client::attach([segment], ClientId(args.number))?;
    for order in std::io::stdin().lines() {
        let spec: Spec = serde_json::from_str(&order?)?;
        let first = (args.number - 1) * spec.threads as u64;
        let samples = run_threads(spec.threads, spec.seed, |number, worker| {
            worker.block_on(async {
                let queue = client.connect(worker, NodeId(0))?;
                measure(worker, &queue, &spec, (first + number as u64) * AREA).await
            })
        });
        let samples: Vec<Sample> = samples.into_iter().collect::<Result<_, _>>()?;
        println!("{}", serde_json::to_string(&samples)?);
    }
    Ok(ExitCode::SUCCESS)
}
