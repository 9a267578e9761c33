//! The machines and client processes of a simulated pool.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::Poll;

use farside_fabric::{ClientId, NodeId, Worker};
use farside_pool::alloc::{Heap, Place, SafePoint, SizeClass};
use farside_pool::{
    Config, ConfigStore, Connect, Ended, Keeper, Lapsed, LeftOut, Links, Means, Member, Newcomer,
    Petition, RegionId, Replica, Seat, Terms, View,
};
use farside_sim::{ClockModel, ProcessId};

use super::log::Believed;
use super::store::SimStore;
use super::world::Shared;
use super::{LEASE, Rule};
use crate::sim_connect::SimConnect;

/// Memory of a node.
pub(super) const NODE_BYTES: u64 = farside_pool::CONTROL_BYTES + 4 * REGION_BYTES;

/// Eight chunks: enough for slabs of two sessions.
const REGION_BYTES: u64 = 512 << 10;

/// A process with a session.
pub(super) struct Process {
    pub(super) id: ProcessId,
    pub(super) client: u64,
    pub(super) worker: Worker,
    /// What it knows, once it has joined.
    pub(super) view: Rc<Cell<Option<Arc<View>>>>,
    pub(super) alive: bool,
    pub(super) paused_until_ns: u64,
    /// Its session has ended: another process takes its place.
    pub(super) ended: Rc<Cell<bool>>,
}

impl Process {
    /// The view, looked at.
    pub(super) fn view(&self) -> Option<Arc<View>> {
        look(&self.view)
    }
}

fn look(view: &Cell<Option<Arc<View>>>) -> Option<Arc<View>> {
    let known = view.take();
    view.set(known.clone());
    known
}

/// A seat in the view, once the process has joined.
fn sit<'s>(view: &Cell<Option<Arc<View>>>, seat: &'s mut Option<Seat>) -> Option<&'s Seat> {
    if seat.is_none() {
        *seat = Some(look(view)?.seat());
    }
    seat.as_ref()
}

/// A machine: a node, its keeper, and a session that can manage.
pub(super) struct Machine {
    pub(super) node: NodeId,
    pub(super) keeper: ProcessId,
    /// Which of its lives this is.
    pub(super) life: u64,
    pub(super) session: Process,
    /// Its node is up, and its keeper runs.
    pub(super) alive: bool,
    pub(super) isolated: bool,
    /// A client that was cut off together with it.
    pub(super) companion: Option<u64>,
    pub(super) paused_until_ns: u64,
    /// The keeper has ended: the node must begin another life.
    pub(super) lapsed: Rc<Cell<Option<Lapsed>>>,
}

impl Shared {
    fn means(&self, process: ProcessId, client: u64, worker: &Worker) -> Means {
        let store: Rc<dyn ConfigStore> =
            Rc::new(SimStore { world: Rc::clone(&self.store), worker: worker.clone(), client });
        let connect: Rc<dyn Connect> = Rc::new(SimConnect { sim: Weak::clone(&self.sim), process });
        let left_out = match self.without {
            Some(Rule::LastCopy) => Some(LeftOut::LastCopy),
            Some(Rule::Contest) => Some(LeftOut::Contest),
            _ => None,
        };
        let (worker, client) = (worker.clone(), ClientId(client));
        Means { worker, client, store, connect, left_out, eager: self.eager }
    }

    /// Starts the session of a process; `found` is for the very first.
    pub(super) fn start_process(self: &Rc<Self>, found: Option<Vec<Newcomer>>) -> Process {
        let sim = self.sim.upgrade().expect("the world lasts");
        let client = self.next_client();
        let id = sim.add_process_as(ClientId(client));
        let worker = sim.add_thread(id);
        let (view, ended) = (Rc::new(Cell::new(None)), Rc::new(Cell::new(false)));
        let means = self.means(id, client, &worker);
        let (told, over) = (Rc::clone(&view), Rc::clone(&ended));
        let session = async move {
            let joined = match found {
                Some(nodes) => {
                    let regions = [(REGION_BYTES, 3); 4];
                    Member::found(means, Terms::new(LEASE), &nodes, &regions)
                        .await
                        .map(|m| m.expect("the first"))
                }
                None => Member::join(means).await,
            };
            if let Ok(member) = joined {
                told.set(Some(member.view()));
                let ended = member.run().await;
                debug_assert_eq!(ended, Ended::PutOut);
            }
            over.set(true);
        };
        worker.spawn(session).detach();
        Process { id, client, worker, view, alive: true, paused_until_ns: 0, ended }
    }

    /// Begins another life of a machine's node: formatted, kept, and asking to be a member.
    pub(super) fn start_keeper(
        self: &Rc<Self>,
        node: NodeId,
    ) -> (ProcessId, Newcomer, Rc<Cell<Option<Lapsed>>>) {
        let sim = self.sim.upgrade().expect("the world lasts");
        let client = self.next_client();
        let id = sim.add_process_as(ClientId(client));
        let worker = sim.add_thread(id);
        let lapsed = Rc::new(Cell::new(None));
        let (over, shared) = (Rc::clone(&lapsed), Rc::clone(self));
        let means = self.means(id, client, &worker);
        // No two machines have been up for equally long, and their clocks run differently.
        let drift_ppb = (client * 7919 % 180_001) as i64 - 90_000;
        sim.set_node_clock(node, ClockModel { offset_ns: client << 24, drift_ppb });
        let queue = sim.connect(id, &worker, node).expect("it was just started");
        let keeping = async move {
            let terms = Terms::new(LEASE);
            let keeper = loop {
                let formatted = Keeper::format(&means.worker, queue.clone(), terms, client).await;
                match formatted {
                    Ok(keeper) => break keeper,
                    Err(_) => _ = queue.reconnect().await,
                }
            };
            let why = keeper.keep(&means.store, &node.0.to_string(), |_| {}).await;
            // Whoever still reads or writes this life gets errors from now on.
            if let Some(sim) = shared.sim.upgrade() {
                sim.kill_node(node);
            }
            over.set(Some(why));
        };
        worker.spawn(keeping).detach();
        let address = node.0.to_string();
        (id, Newcomer { address, incarnation: client, bytes: NODE_BYTES, versions: false }, lapsed)
    }

    /// A task that writes to primaries as long as it may.
    pub(super) fn start_writer(self: &Rc<Self>, process: &Process) {
        let shared = Rc::clone(self);
        let (worker, view) = (process.worker.clone(), Rc::clone(&process.view));
        let means = self.means(process.id, process.client, &worker);
        let writing = async move {
            let links = Links::new(&worker, &means.connect);
            let mut seat = None;
            loop {
                worker
                    .sleep(
                        LEASE / 64 + std::time::Duration::from_nanos(worker.random_below(60_000)),
                    )
                    .await;
                let Some(seat) = sit(&view, &mut seat) else { continue };
                shared.write(&worker, &links, seat).await;
                if worker.random_below(32) == 0 {
                    claim(&worker, &links, seat, means.client.0).await;
                }
            }
        };
        process.worker.spawn(writing).detach();
        self.start_copier(process);
    }

    /// A task that makes copies, beside the others.
    fn start_copier(self: &Rc<Self>, process: &Process) {
        let (worker, view) = (process.worker.clone(), Rc::clone(&process.view));
        let means = self.means(process.id, process.client, &worker);
        let copying = async move {
            let links = Links::new(&worker, &means.connect);
            let mut seat = None;
            loop {
                worker.sleep(LEASE / 4).await;
                let Some(seat) = sit(&view, &mut seat) else { continue };
                copy_tables(&worker, &links, seat).await;
            }
        };
        process.worker.spawn(copying).detach();
    }

    /// By the rules: with a lease, and by a configuration that counts.
    fn may_write(&self, view: &View, worker: &Worker, config: &Config) -> bool {
        let now = worker.now();
        let may = match self.without {
            None | Some(Rule::LastCopy | Rule::Contest) => view.may_act(now),
            Some(Rule::Lease) => true,
            Some(Rule::Counting) => view.has_lease(now),
        };
        may && view.epoch() == config.epoch
    }

    async fn write(&self, worker: &Worker, links: &Links, seat: &Seat) -> Option<()> {
        let view = seat.view();
        let config = view.config();
        let region = &config.regions[worker.random_below(config.regions.len() as u64) as usize];
        let primary = region.replicas.first()?;
        let queue = links.to(config.node(primary.node)?).await?;
        if !self.may_write(view, worker, &config) {
            return None;
        }
        let permit = seat.permit(worker.now());
        let posted_ns = self.true_ns();
        let mut round = worker.round();
        round.to(&queue).faa(primary.base, 1);
        let done = unless_removed(worker, view, &[*primary], round.ring()).await;
        let completed_ns = self.true_ns();
        let mut log = self.log.borrow_mut();
        let believed = permit.is_none_or(|permit| permit.is_valid(worker.now()));
        if done.is_none_or(|done| done.is_err()) || !believed {
            self.lost.set(self.lost.get() + 1);
            return None;
        }
        let (region, epoch, node) = (region.id, config.epoch, primary.node);
        log.writes.push(Believed { region, epoch, node, posted_ns, completed_ns });
        Some(())
    }
}

/// What verbs to some nodes yield; `None` once one of them is no member any more: nobody waits for it then,
/// and nobody asks it again.
async fn unless_removed<T>(
    worker: &Worker,
    view: &View,
    replicas: &[Replica],
    ringing: impl Future<Output = T>,
) -> Option<T> {
    let mut ringing = pin!(ringing);
    loop {
        let mut look = pin!(worker.sleep(LEASE / 32));
        let turn = poll_fn(|cx| match ringing.as_mut().poll(cx) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending => look.as_mut().poll(cx).map(|()| None),
        });
        if let Some(done) = turn.await {
            return Some(done);
        }
        let config = view.config();
        if replicas.iter().any(|replica| config.node(replica.node).is_none()) {
            return None;
        }
    }
}

/// Makes the copies that are to be made: of the tables, for there is nothing else in these regions.
async fn copy_tables(worker: &Worker, links: &Links, seat: &Seat) -> Option<()> {
    let config = seat.view().config();
    for region in &config.regions {
        let (Some(from), Some(to)) = (region.replicas.first(), region.joining.first()) else {
            continue;
        };
        let (here, there) = (config.node(from.node)?, config.node(to.node)?);
        let (here, there) = (links.to(here).await?, links.to(there).await?);
        let permit = seat.permit(worker.now())?;
        if permit.config().epoch != config.epoch {
            return None;
        }
        let copying = async {
            loop {
                let mut round = worker.round();
                let bytes = (region.bytes / (64 << 10) * 8) as usize;
                let table = round.to(&here).read(from.base, bytes);
                let copy = round.to(&there).read(to.base, bytes);
                let done = round.ring().await?;
                // The first word is what writers count in, at the primary.
                if done[table][1..] == done[copy][1..] {
                    return Ok::<_, farside_fabric::FabricError>(());
                }
                let mut round = worker.round();
                round.to(&there).write(to.base + 8, &done[table][1..]);
                round.ring().await?;
            }
        };
        unless_removed(worker, seat.view(), &[*from, *to], copying).await?.ok()?;
        seat.view().wish(Petition::Whole { region: region.id, replica: *to });
    }
    Some(())
}

/// Nobody keeps addresses here.
struct AtOnce;

impl SafePoint for AtOnce {
    fn now(&self) -> u64 {
        0
    }

    fn has_passed(&self, _: u64) -> bool {
        true
    }
}

/// Claims a slab that its owner leaves behind when it dies.
async fn claim(worker: &Worker, links: &Links, seat: &Seat, client: u64) -> Option<()> {
    let config = seat.view().config();
    let region = &config.regions[worker.random_below(config.regions.len() as u64) as usize];
    let (mut replicas, mut joining) = (Vec::new(), Vec::new());
    for replica in &region.replicas {
        replicas.push((links.to(config.node(replica.node)?).await?, replica.base));
    }
    for replica in &region.joining {
        joining.push((links.to(config.node(replica.node)?).await?, replica.base));
    }
    // Only now: who waits for a connection must not keep others from a change.
    let permit = seat.permit(worker.now())?;
    if replicas.is_empty() || permit.config().epoch != config.epoch {
        return None;
    }
    let place = Place { region: RegionId(region.id), bytes: region.bytes, replicas, joining };
    let owner = config.session(client)?.owner(0)?;
    let class = SizeClass::of([100, 100_000][worker.random_below(2) as usize])?;
    let mut heap = Heap::new(worker, owner, vec![place]);
    // One is kept, and another given back.
    let claiming = async {
        heap.refill(class).await?;
        heap.refill(class).await?;
        heap.tidy(&AtOnce).await
    };
    let all: Vec<Replica> = region.replicas.iter().chain(&region.joining).copied().collect();
    unless_removed(worker, seat.view(), &all, claiming).await?.ok().map(drop)
}
