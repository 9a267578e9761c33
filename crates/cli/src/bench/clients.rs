//! Client processes of a benchmark on shared memory or a network: started, told what to measure, and ended by the
//! process that has the memory node.

use std::io::{BufRead, BufReader, Write};
use std::net::ToSocketAddrs;
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use farside_fabric::runtime::run_threads;
use farside_fabric::shm::Segment;
use farside_fabric::{ClientId, NodeId, Queue, Worker, rdma, tcp};

use super::BenchArgs;
use super::measure::{Sample, measure};
use super::verbs::{AREA, Spec};
use crate::credentials::Credentials;
use crate::node_process::{self, Running, program};
use crate::output::say;
use crate::rdma_args::RdmaArgs;

/// Options of a client process.
#[derive(Args)]
pub(crate) struct ClientArgs {
    /// The memory node: shm:PATH, tcp:ADDRESS or rdma:ADDRESS
    #[arg(long)]
    connect: String,

    /// The number of this process, from 1 on
    #[arg(long)]
    number: u64,

    #[command(flatten)]
    credentials: Credentials,

    #[command(flatten)]
    rdma: RdmaArgs,
}

/// The processes, and the node that they use.
pub(super) struct Clients {
    processes: Vec<Process>,
    _node: Memory,
}

/// A memory node that ends with the benchmark.
enum Memory {
    Segment {
        _segment: Segment,
    },
    Process {
        _process: Running,
    },
    /// Somebody else's.
    Foreign,
}

struct Process {
    _running: Running,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Clients {
    /// Makes a memory node in shared memory, and starts the processes.
    pub(super) fn on_shm(args: &BenchArgs) -> Result<Self> {
        let segment = Segment::in_memory(NodeId(0), memory(args))?;
        let connect = format!("shm:{}", segment.path().display());
        Self::start(args, &connect, Memory::Segment { _segment: segment })
    }

    /// Starts a memory node process, or uses a running one, and starts the processes.
    pub(super) fn on_network(args: &BenchArgs, running: Option<&str>) -> Result<Self> {
        let fabric = args.fabric;
        if let Some(address) = running {
            return Self::start(args, &format!("{fabric}:{address}"), Memory::Foreign);
        }
        let (node, address) =
            node_process::start(&fabric.to_string(), memory(args), &args.rdma.for_child())?;
        Self::start(args, &format!("{fabric}:{address}"), Memory::Process { _process: node })
    }

    fn start(args: &BenchArgs, connect: &str, node: Memory) -> Result<Self> {
        let program = program()?;
        let processes = (1..=args.compute)
            .map(|number| {
                let mut child = Command::new(&program)
                    .args(["bench-client", "--connect", connect, "--number", &number.to_string()])
                    .args(args.credentials.for_child())
                    .args(args.rdma.for_child())
                    .stdin(Stdio::piped())
                    .stdout(Stdio::piped())
                    .spawn()
                    .context("starting a client process")?;
                Ok(Process {
                    orders: child.stdin.take().expect("piped"),
                    answers: BufReader::new(child.stdout.take().expect("piped")),
                    _running: Running(child),
                })
            })
            .collect::<Result<_>>()?;
        Ok(Clients { processes, _node: node })
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

/// What all threads of all processes need.
fn memory(args: &BenchArgs) -> u64 {
    u64::from(args.compute) * args.threads() as u64 * AREA
}

/// How a client process reaches the node.
enum Node {
    Shm(farside_fabric::shm::Client),
    Tcp(tcp::Client),
    Rdma(rdma::Client),
}

impl Node {
    fn parse(args: &ClientArgs) -> Result<Self> {
        let (connect, id) = (&args.connect, ClientId(args.number));
        match connect.split_once(':') {
            Some(("shm", path)) => {
                let segment = Segment::open(Path::new(path))?;
                Ok(Node::Shm(farside_fabric::shm::Client::attach([segment], id)?))
            }
            Some((network @ ("tcp" | "rdma"), address)) => {
                let address = address
                    .to_socket_addrs()
                    .with_context(|| format!("'{address}': expected HOST:PORT"))?
                    .next()
                    .with_context(|| format!("'{address}': no such host"))?;
                let options = args.credentials.options()?;
                if network == "rdma" {
                    let rdma = args.rdma.options();
                    let client = rdma::Client::open(id, vec![address], options, &rdma)?;
                    return Ok(Node::Rdma(client));
                }
                Ok(Node::Tcp(tcp::Client::new(id, vec![address], options)))
            }
            _ => bail!("'{connect}': expected shm:PATH, tcp:HOST:PORT or rdma:HOST:PORT"),
        }
    }

    fn connect(&self, worker: &Worker) -> farside_fabric::Result<Queue> {
        match self {
            Node::Shm(client) => client.connect(worker, NodeId(0)),
            Node::Tcp(client) => client.connect(worker, NodeId(0)),
            Node::Rdma(client) => client.connect(worker, NodeId(0)),
        }
    }
}

/// The whole life of a client process: one order a line, until there are no more.
pub(crate) fn run_client(args: &ClientArgs) -> Result<ExitCode> {
    // Whatever becomes of the parent, this process does not outlive it.
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    let node = Node::parse(args)?;
    for order in std::io::stdin().lines() {
        let spec: Spec = serde_json::from_str(&order?)?;
        let first = (args.number - 1) * spec.threads as u64;
        let samples = run_threads(spec.threads, spec.seed, |number, worker| {
            worker.block_on(async {
                let queue = node.connect(worker)?;
                measure(worker, &queue, &spec, (first + number as u64) * AREA).await
            })
        });
        let samples: Vec<Sample> = samples.into_iter().collect::<Result<_, _>>()?;
        say!("{}", serde_json::to_string(&samples)?);
    }
    Ok(ExitCode::SUCCESS)
}
