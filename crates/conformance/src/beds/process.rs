//! Actors as processes: started from a program that knows how to be one, killed with SIGKILL.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use farside_fabric::shm::{Client, Segment};
use farside_fabric::{ClientId, NodeId, Queue, Services, Worker};

use super::tcp::Network;
use crate::actor::{self, Job};
use crate::bed::{Actor, Boxed, Ended, JOIN_PAUSE, NODES, service};

/// The first argument of a program that is to be an actor; the others are for [`act`].
pub const ACTOR: &str = "conformance-actor";

/// Starts an actor: how it reaches the nodes is told by `connect`.
pub fn start(program: &Path, connect: &str, client: ClientId, job: Job) -> Result<Box<dyn Actor>> {
    let child = Command::new(program)
        .args([ACTOR, connect, &client.0.to_string(), &job.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("starting an actor from {}", program.display()))?;
    Ok(Box::new(ProcessActor { client, child: Some(child) }))
}

/// The whole life of an actor process; `args` are those behind [`ACTOR`].
pub fn act(args: &[String]) -> Result<()> {
    let [connect, client, job] = args else {
        bail!("an actor needs CONNECT CLIENT JOB");
    };
    let client = ClientId(client.parse()?);
    let job: Job = job.parse()?;
    let worker = Worker::new(job.me);
    if let Some(("shm-serve", paths)) = connect.split_once(':') {
        return serve(&attach(paths, client)?, &worker);
    }
    let queues = queues(connect, client, &worker)?;
    worker.block_on(actor::work(job, &worker, &queues))
}

fn queues(connect: &str, client: ClientId, worker: &Worker) -> Result<Vec<Queue>> {
    match connect.split_once(':') {
        Some(("shm", paths)) => {
            let client = attach(paths, client)?;
            (0..NODES).map(|node| Ok(client.connect(worker, NodeId(node))?)).collect()
        }
        Some(("tcp", nodes)) => super::tcp::queues(Network::Tcp, nodes, client, worker),
        Some(("rdma", nodes)) => super::tcp::queues(Network::Rdma, nodes, client, worker),
        _ => bail!("'{connect}' is not a way to connect"),
    }
}

fn attach(paths: &str, client: ClientId) -> Result<Client> {
    let segments = paths.split(',').map(|path| Segment::open(Path::new(path)));
    Ok(Client::attach(segments.collect::<Result<Vec<_>, _>>()?, client)?)
}

/// Answers calls instead of doing a job, until it is killed.
fn serve(client: &Client, worker: &Worker) -> Result<()> {
    let services = Arc::new(Services::default());
    service::offer(&services);
    let _servers = (0..NODES)
        .map(|node| client.serve(NodeId(node), Arc::clone(&services)))
        .collect::<Result<Vec<_>, _>>()?;
    worker.block_on(std::future::pending())
}

struct ProcessActor {
    client: ClientId,
    /// Taken when it has ended.
    child: Option<Child>,
}

impl Actor for ProcessActor {
    fn client(&self) -> ClientId {
        self.client
    }

    fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    fn has_ended(&mut self) -> bool {
        self.child.as_mut().is_none_or(|child| !matches!(child.try_wait(), Ok(None)))
    }

    fn kill(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
        }
    }

    fn join<'a>(mut self: Box<Self>, worker: &'a Worker) -> Boxed<'a, Ended> {
        Box::pin(async move {
            let child = self.child.as_mut().expect("joined once");
            loop {
                match child.try_wait() {
                    Ok(None) => worker.sleep(JOIN_PAUSE).await,
                    Ok(Some(_)) => break,
                    Err(error) => return Ended::Failed(error.to_string()),
                }
            }
            let child = self.child.take().expect("joined once");
            match child.wait_with_output() {
                Err(error) => Ended::Failed(error.to_string()),
                Ok(output) if output.status.success() => Ended::Finished,
                Ok(output) if output.status.code().is_none() => Ended::Killed,
                Ok(output) => Ended::Failed(String::from_utf8_lossy(&output.stderr).into_owned()),
            }
        })
    }
}

impl Drop for ProcessActor {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
