//! Transactions on an engine.

use std::process::ExitCode;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use farside_fabric::{Persistence, Worker};
use farside_sim::{Busy, Faults, Profile, Sim};
use farside_workloads::driver::{self, Control, Plan, Tally, Until};
use farside_workloads::engine::{
    DatabaseEngine, Engine, Limits, Reference, SimTables, TableShape, Versions,
};
use farside_workloads::history::Sink;
use farside_workloads::load::{Kind, Visit, Workload};
use farside_workloads::trial::simulate;

use super::BenchArgs;
use super::place::Place;
use super::txn_report::TxnReport;
use crate::durability::Durability;
use crate::fabric_arg::FabricArg;
use crate::level::LevelArg;
use crate::progress::Progress;
use crate::protocol::ProtocolArg;

/// How much of a run is warming up, where it is bounded by time.
const WARMUP: f64 = 0.1;

/// What a step of the reference engine takes in the simulator.
const STEP: Duration = Duration::from_micros(2);

/// What a run found.
struct Found {
    tally: Tally,
    invariants: std::result::Result<(), String>,
    /// Of simulated machines.
    busy: Option<Busy>,
}

pub(super) fn run(args: &BenchArgs, kind: Kind) -> Result<ExitCode> {
    check(args)?;
    let sink = match &args.history {
        Some(path) => {
            Some(Sink::to_file(path).with_context(|| format!("--history {}", path.display()))?)
        }
        None => None,
    };
    let shape = args.shape.shape(args.plan().threads);
    let found = kind.visit(&shape, Run { args, sink: sink.as_ref() });
    let found = found.map_err(|why| anyhow!(why))??;
    if let Some(sink) = sink {
        sink.finish().context("writing the history")?;
    }
    let mut report = TxnReport::new(args, kind, &found.tally, &found.invariants);
    report.busy = found.busy;
    report.print(args.json)?;
    Ok(ExitCode::from(u8::from(found.invariants.is_err())))
}

/// Options that do not go together.
fn check(args: &BenchArgs) -> Result<()> {
    let simulated = args.fabric.profile().is_some();
    ensure!(
        args.verb.is_empty() && args.bytes.is_empty() && args.outstanding.is_empty(),
        "--verb, --bytes and --outstanding are for verbs"
    );
    ensure!(
        args.compute == 1 || simulated,
        "--compute: transactions run in one process so far; several machines can be simulated"
    );
    ensure!(!args.charge_code || simulated, "--charge-code: expected --fabric sim:PROFILE");
    let protocol = args.protocol.protocol(&args.without)?;
    let versions = protocol.map(|protocol| protocol.versions);
    ensure!(
        versions != Some(Versions::Process) || args.compute == 1,
        "--compute: the version cache of ford-lv is in one machine; expected ford-lv-node, ford-lv-switch, or --without version-cache"
    );
    ensure!(
        args.connect.is_none() || args.protocol.is_default() && args.without.is_empty(),
        "--protocol, --without: all who use a cluster have to agree; say that in the URL of --connect (protocol=ford-without-backup-reads)"
    );
    ensure!(
        args.durability == Durability::None
            || args.fabric == FabricArg::Tcp && args.connect.is_none()
            || args.fabric.profile().is_some_and(|it| it.persistence != Persistence::Volatile),
        "--durability flush: expected --fabric tcp, whose nodes keep journals, or sim:PROFILE+pm; for a running cluster, say durability=flush in the URL of --connect"
    );
    match args.protocol {
        ProtocolArg::Reference => {
            ensure!(
                simulated || args.fabric == FabricArg::Local,
                "--fabric {}: the reference engine lives in this process; expected local or sim:PROFILE",
                args.fabric
            );
            ensure!(args.connect.is_none(), "--connect: the reference engine is in no cluster");
            if args.nodes.is_some() || args.level != LevelArg::Strict {
                eprintln!(
                    "the reference engine has one copy in no node, and is strict: --nodes and --level change nothing"
                );
            }
        }
        ProtocolArg::Preset(_) => {
            ensure!(args.connect.is_none() || !simulated, "--connect: nobody is simulated there");
        }
    }
    Ok(())
}

struct Run<'a> {
    args: &'a BenchArgs,
    sink: Option<&'a Sink>,
}

impl Visit for Run<'_> {
    type Output = Result<Found>;

    fn visit<W: Workload + Send + 'static>(self, workload: W) -> Result<Found> {
        let (args, workload) = (self.args, Arc::new(workload));
        match (args.fabric.profile(), args.protocol) {
            (Some(profile), _) => self.simulate(profile, &workload),
            (None, ProtocolArg::Reference) => self.run(&Reference::new(None), &workload),
            (None, ProtocolArg::Preset(_)) => {
                let place = Place::new(args, &workload.tables())?;
                self.run(&DatabaseEngine::new(place.db.clone()).at(args.level.promise()), &workload)
            }
        }
    }
}

impl Run<'_> {
    fn simulate<W: Workload + Send + 'static>(
        &self,
        profile: Profile,
        workload: &Arc<W>,
    ) -> Result<Found> {
        let (args, plan) = (self.args, self.args.plan());
        let sim = Rc::new(Sim::new(profile, args.seed, Faults::none()));
        let ran = match args.protocol.protocol(&args.without)? {
            None => {
                let engine = Reference::new(None).with_pause(STEP);
                let process = sim.add_process();
                let thread = |_| sim.add_thread(process);
                simulate(&sim, &thread, &engine, workload, &plan, self.sink)?
            }
            Some(protocol) => {
                let nodes = args.nodes.unwrap_or(args.replicas);
                let room = TableShape::room(&workload.tables(), plan.threads);
                let engine = SimTables::with_room(&sim, args.replicas.into(), nodes.into(), room)
                    .with_real_clocks()
                    .with_code(args.charge_code)
                    .with_level(args.level.promise())
                    .with_limits(|limits| {
                        *limits = Limits::default().following(protocol);
                        limits.durable = args.durability == Durability::Flush;
                        limits.alone = args.compute == 1;
                    });
                let threads = args.threads();
                let thread = |number: usize| engine.add_thread((number / threads) as u64);
                simulate(&sim, &thread, &engine, workload, &plan, self.sink)?
            }
        };
        Ok(Found { tally: ran.tally, invariants: ran.invariants, busy: Some(ran.busy) })
    }

    fn run<E, W>(&self, engine: &E, workload: &Arc<W>) -> Result<Found>
    where
        E: Engine + Clone + Send + Sync + 'static,
        W: Workload + Send + 'static,
    {
        let (args, plan) = (self.args, self.args.plan());
        let worker = Worker::new(args.seed);
        let control = Arc::new(Control::default());
        signal_hook::flag::register(signal_hook::consts::SIGINT, Arc::clone(&control.stop))
            .context("catching Ctrl-C")?;
        let loading = Progress::show(|| "loading".into());
        worker.block_on(async {
            engine.join(&worker).await?;
            engine.create(&worker, &workload.tables()).await?;
            workload.setup(engine, &worker).await
        })?;
        drop(loading);
        let progress = progress(&control);
        let tally = driver::run(engine, workload, &plan, &control, self.sink)?;
        drop(progress);
        let invariants = worker.block_on(workload.check(&mut engine.session(&worker)));
        engine.leave(&worker);
        Ok(Found { tally, invariants, busy: None })
    }
}

fn progress(control: &Arc<Control>) -> Progress {
    let (control, start) = (Arc::clone(control), Instant::now());
    Progress::show(move || {
        let (done, seconds) =
            (control.committed.load(Ordering::Relaxed), start.elapsed().as_secs_f64());
        format!("{seconds:6.1} s  {done} committed, {:.0} per second", done as f64 / seconds)
    })
}

impl BenchArgs {
    fn plan(&self) -> Plan {
        let span = Duration::from_secs_f64(self.seconds());
        let (until, warmup) = match self.txns {
            Some(txns) => (Until::Txns(txns), Duration::ZERO),
            None => (Until::Time(span), span.mul_f64(WARMUP)),
        };
        Plan {
            threads: self.threads() * usize::from(self.compute),
            coordinators: self.coordinators.into(),
            until,
            warmup,
            rate: self.rate,
            drops: self.drop_aborted,
            seed: self.seed,
        }
    }
}
