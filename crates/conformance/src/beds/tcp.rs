//! The bed of `tcp` and `rdma`: memory nodes and actors are processes.

use std::cell::{Cell, RefCell};
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};
use farside_fabric::tcp::{Node, NodeOptions, Options, Stop};
use farside_fabric::{ClientId, NodeId, Queue, Worker, rdma, tcp};
use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};

use super::process;
use crate::actor::Job;
use crate::bed::{Actor, Bed, NODE_BYTES, NODES, service};

/// The first argument of a program that is to be a memory node; then come its network (`tcp` or `rdma`)
/// and its address.
pub const NODE: &str = "conformance-node";

/// How the memory of a node is reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Network {
    /// Over its connections.
    Tcp,
    /// Through its NIC.
    Rdma,
}

impl Network {
    /// As it is called on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Network::Tcp => "tcp",
            Network::Rdma => "rdma",
        }
    }

    /// A client of nodes at these addresses.
    fn client(self, id: ClientId, addresses: Vec<SocketAddr>) -> Result<Client> {
        let options = Options::default();
        Ok(match self {
            Network::Tcp => Client::Tcp(tcp::Client::new(id, addresses, options)),
            Network::Rdma => {
                let rdma = rdma::Options::default();
                Client::Rdma(rdma::Client::open(id, addresses, options, &rdma)?)
            }
        })
    }
}

#[derive(Debug)]
enum Client {
    Tcp(tcp::Client),
    Rdma(rdma::Client),
}

impl Client {
    fn id(&self) -> ClientId {
        match self {
            Client::Tcp(client) => client.id(),
            Client::Rdma(client) => client.id(),
        }
    }

    fn connect(&self, worker: &Worker, node: NodeId) -> farside_fabric::Result<Queue> {
        match self {
            Client::Tcp(client) => client.connect(worker, node),
            Client::Rdma(client) => client.connect(worker, node),
        }
    }
}

/// Memory nodes in processes of their own.
#[derive(Debug)]
pub struct TcpBed {
    network: Network,
    share: u64,
    worker: Worker,
    nodes: Vec<RefCell<NodeProcess>>,
    client: Client,
    next_client: Cell<u64>,
    program: PathBuf,
    prefix: Vec<String>,
    /// What actors and the case connect to: the nodes, or something between.
    addresses: Vec<SocketAddr>,
}

/// A memory node in a process of its own, killed when dropped.
#[derive(Debug)]
pub struct NodeProcess {
    child: Child,
    /// Where it listens.
    pub address: SocketAddr,
}

impl NodeProcess {
    /// Started by `prefix`, if there is one, such as `ip netns exec NAME`.
    pub fn start(
        network: Network,
        program: &Path,
        prefix: &[String],
        address: SocketAddr,
    ) -> Result<Self> {
        let mut command: Vec<_> = prefix.iter().map(std::ffi::OsString::from).collect();
        command.extend([program.into(), NODE.into(), network.name().into()]);
        command.push(address.to_string().into());
        let mut child = Command::new(&command[0])
            .args(&command[1..])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("starting a node from {}", program.display()))?;
        let mut line = String::new();
        let stdout = child.stdout.take().expect("piped");
        BufReader::new(stdout).read_line(&mut line)?;
        let address = line.trim().parse().with_context(|| format!("a node said '{line}'"))?;
        Ok(NodeProcess { child, address })
    }

    /// Sends a signal to the process.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid = Pid::from_raw(self.child.id() as i32).context("a process has an id")?;
        Ok(kill_process(pid, signal)?)
    }

    fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for NodeProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

impl TcpBed {
    /// A fresh one, whose nodes and actors are started from `program`.
    pub fn new(program: &Path, network: Network) -> Result<Self> {
        Self::on(network, program, &[], IpAddr::from([127, 0, 0, 1]), Ok)
    }

    /// The same, where cases repeat only this part of what they usually do.
    #[must_use]
    pub fn hurried(self, share: u64) -> Self {
        TcpBed { share, ..self }
    }

    /// One in which everybody connects through whatever `between` puts in front of a node.
    pub fn through(
        program: &Path,
        between: impl FnMut(SocketAddr) -> Result<SocketAddr>,
    ) -> Result<Self> {
        Self::elsewhere(program, &[], IpAddr::from([127, 0, 0, 1]), between)
    }

    /// One whose nodes are started by `prefix` and listen at `host`.
    pub fn elsewhere(
        program: &Path,
        prefix: &[String],
        host: IpAddr,
        between: impl FnMut(SocketAddr) -> Result<SocketAddr>,
    ) -> Result<Self> {
        Self::on(Network::Tcp, program, prefix, host, between)
    }

    fn on(
        network: Network,
        program: &Path,
        prefix: &[String],
        host: IpAddr,
        mut between: impl FnMut(SocketAddr) -> Result<SocketAddr>,
    ) -> Result<Self> {
        let any = SocketAddr::from((host, 0));
        let nodes: Vec<_> = (0..NODES)
            .map(|_| Ok(RefCell::new(NodeProcess::start(network, program, prefix, any)?)))
            .collect::<Result<_>>()?;
        let addresses: Vec<_> =
            nodes.iter().map(|node| between(node.borrow().address)).collect::<Result<_>>()?;
        let client = network.client(ClientId(1), addresses.clone())?;
        Ok(TcpBed {
            network,
            share: 1,
            worker: Worker::new(1),
            nodes,
            client,
            next_client: Cell::new(2),
            program: program.into(),
            prefix: prefix.to_vec(),
            addresses,
        })
    }
}

impl Bed for TcpBed {
    fn worker(&self) -> &Worker {
        &self.worker
    }

    fn times(&self, usual: u64) -> u64 {
        usual / self.share
    }

    fn connect(&self, node: NodeId) -> farside_fabric::Result<Queue> {
        self.client.connect(&self.worker, node)
    }

    fn client(&self) -> ClientId {
        self.client.id()
    }

    fn spawn(&self, job: Job, client: Option<ClientId>) -> Result<Box<dyn Actor>> {
        let client = client.unwrap_or_else(|| {
            self.next_client.set(self.next_client.get() + 1);
            ClientId(self.next_client.get())
        });
        let addresses: Vec<_> = self.addresses.iter().map(ToString::to_string).collect();
        let url = format!("{}:{}", self.network.name(), addresses.join(","));
        process::start(&self.program, &url, client, job)
    }

    fn kill_node(&self, node: NodeId) -> Result<()> {
        self.nodes[node.0 as usize].borrow_mut().kill();
        Ok(())
    }

    fn restart_node(&self, node: NodeId) -> Result<bool> {
        let mut process = self.nodes[node.0 as usize].borrow_mut();
        let address = process.address;
        *process = NodeProcess::start(self.network, &self.program, &self.prefix, address)?;
        Ok(true)
    }
}

/// The whole life of a node process; `args` are those behind [`NODE`].
pub fn be_node(args: &[String]) -> Result<()> {
    let [network, address] = args else { bail!("a node needs NETWORK ADDRESS") };
    // Whatever becomes of the test, this process does not outlive it.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let options = NodeOptions {
        listen: address.parse()?,
        memory_bytes: NODE_BYTES,
        ..NodeOptions::default()
    };
    let node = match network.as_str() {
        "rdma" => rdma::open_node(options, &rdma::Options::default())?,
        _ => Node::bind(options)?,
    };
    service::offer(&node.services());
    println!("{}", node.address()?);
    node.run(&Stop::new()?, |_| {})?;
    Ok(())
}

/// The queues of an actor.
pub(super) fn queues(
    network: Network,
    addresses: &str,
    client: ClientId,
    worker: &Worker,
) -> Result<Vec<Queue>> {
    let addresses = addresses.split(',').map(str::parse).collect::<Result<Vec<_>, _>>()?;
    let client = network.client(client, addresses)?;
    (0..NODES).map(|node| Ok(client.connect(worker, NodeId(node))?)).collect()
}
