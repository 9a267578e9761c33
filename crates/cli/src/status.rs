//! `farside status`: a pool from outside.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use clap::Args;
use farside_fabric::{ClientId, Worker};
use farside_pool::{Condition, Connect, Inspection, Links, NetConnect, Roles, inspect, store};
use farside_txn::Scrubbed;

use crate::credentials::Credentials;
use crate::node::STORE_TIMEOUT;
use crate::output::say;
use crate::rdma_args::RdmaArgs;

/// Options of `farside status`.
#[derive(Args)]
pub(crate) struct StatusArgs {
    /// Where the pool's configuration is: etcd:HOST:PORT,…/NAME or pool:PATH
    #[arg(long, value_name = "URL")]
    connect: String,

    #[command(flatten)]
    credentials: Credentials,

    #[command(flatten)]
    rdma: RdmaArgs,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Runs `farside status`. A pool that is not well is exit status 1.
pub(crate) fn run(args: &StatusArgs) -> Result<ExitCode> {
    let store =
        store::open(&args.connect, STORE_TIMEOUT).map_err(|why| anyhow!("--connect {why}"))?;
    let worker = Worker::patient(1);
    let client = ClientId(u64::from(std::process::id()) << 32 | 0x5747);
    let options = args.credentials.options()?;
    let connect: Rc<dyn Connect> =
        Rc::new(NetConnect::new(client, options, args.rdma.options(), Duration::from_millis(500)));
    let Some(found) = worker.block_on(inspect(&worker, &*store, &connect))? else {
        bail!("{}: there is no pool; start a node with --config-store to found one", args.connect);
    };
    let links = Links::careless(&worker, &connect);
    let scrubbed = worker.block_on(Scrubbed::look(&worker, &links, &found.config));
    if args.json {
        say!("{}", json(&found, scrubbed));
    } else {
        print(&found);
        print_scrubbed(scrubbed);
    }
    Ok(ExitCode::from(u8::from(!is_well(&found))))
}

fn is_well(found: &Inspection) -> bool {
    let alive = found.nodes.values().all(|condition| *condition == Condition::Alive);
    let whole = found.config.regions.iter().all(|region| !region.replicas.is_empty());
    found.managed && alive && whole && found.counting == found.config.epoch
}

fn json(found: &Inspection, scrubbed: Option<Scrubbed>) -> serde_json::Value {
    let config = &found.config;
    let members: Vec<_> = config
        .nodes
        .iter()
        .map(|node| {
            let Roles { primaries, copies } = config.roles(node.id);
            serde_json::json!({
                "id": node.id, "address": node.address, "draining": node.draining,
                "state": found.nodes.get(&node.id), "home": node.id == config.home,
                "primaries": primaries, "copies": copies, "versions": node.versions,
            })
        })
        .collect();
    let leases: Vec<_> = config
        .sessions
        .iter()
        .map(|session| {
            let condition = found.sessions.get(&session.client);
            serde_json::json!({
                "client": format!("{:x}", session.client), "slot": session.slot,
                "manages": session.client == config.manager,
                "alive": condition.map(|condition| condition.alive),
                "acknowledged": condition.map(|condition| condition.acknowledged),
                "uncertainty_us": condition.and_then(|condition| condition.uncertainty_ns).map(micros),
                "skew_ppm": condition.map(|condition| condition.skew_ppb as f64 / 1e3),
            })
        })
        .collect();
    serde_json::json!({
        "ok": is_well(found), "epoch": config.epoch, "counting": found.counting,
        "managed": found.managed, "lease_ms": config.lease_ns as f64 / 1e6,
        "clock": {
            "master": config.master.map(|master| master.node), "since": config.timed,
            "uncertainty_us": worst(found).map(micros),
        },
        "members": members, "regions": config.regions, "leases": leases,
        "repairs": config.fenced.len(), "petitions": found.petitions, "space": found.space,
        "scrub": scrubbed.map(|scrubbed| serde_json::json!({
            "passes": scrubbed.passes, "objects": scrubbed.objects, "flawed": scrubbed.flawed,
            "first": first_flaw(&scrubbed),
        })),
    })
}

/// Where the first flaw is that the last scrub found.
fn first_flaw(scrubbed: &Scrubbed) -> Option<String> {
    let (addr, node) = scrubbed.first?;
    Some(format!("{:#x} of region {} on node {node}", addr.offset(), addr.region().0))
}

fn print_scrubbed(scrubbed: Option<Scrubbed>) {
    match scrubbed {
        None => say!("scrub: unknown, the node that knows does not answer"),
        Some(Scrubbed { passes: 0, .. }) => say!("scrub: not yet; `farside scrub` does it now"),
        Some(known) => {
            let flaws = match first_flaw(&known) {
                None => "no flaws".into(),
                Some(first) => format!("{} FLAWS, the first at {first}", known.flawed),
            };
            say!("scrub: {} passes; {} objects, {flaws}", known.passes, known.objects);
        }
    }
}

fn micros(ns: u64) -> f64 {
    ns as f64 / 1e3
}

/// How uncertain of the time the worst of those is that live; `None` if somebody knows none.
fn worst(found: &Inspection) -> Option<u64> {
    let alive = found.sessions.values().filter(|session| session.alive);
    alive.map(|session| session.uncertainty_ns).try_fold(0, |worst, one| Some(worst.max(one?)))
}

fn print(found: &Inspection) {
    let config = &found.config;
    let counts =
        if found.counting == config.epoch { "which counts" } else { "which does not count yet" };
    let managed = if found.managed { "managed" } else { "NOBODY MANAGES IT" };
    say!(
        "epoch {}, {counts}; {managed}; leases of {} ms",
        config.epoch,
        config.lease_ns / 1_000_000
    );
    match (config.master, worst(found)) {
        (None, _) => say!("NOBODY HAS THE CLOCK for now: transactions wait"),
        (Some(master), None) => {
            say!("node {} has the clock; not all know its time yet", master.node)
        }
        (Some(master), Some(worst)) => say!(
            "node {} has the clock; all know its time to {:.1} us or better",
            master.node,
            micros(worst)
        ),
    }
    say!("\nnode  state        primaries  copies  address");
    for node in &config.nodes {
        let Roles { primaries, copies } = config.roles(node.id);
        let state = match found.nodes.get(&node.id) {
            Some(Condition::Alive) if node.draining => "draining",
            Some(Condition::Alive) => "alive",
            Some(Condition::Silent) => "SILENT",
            Some(Condition::Reborn) => "REBORN",
            _ => "UNREACHABLE",
        };
        let home = if node.id == config.home { " (home)" } else { "" };
        let versions = if node.versions { " (version cache)" } else { "" };
        say!(
            "{:<5} {state:<12} {primaries:<10} {copies:<7} {}{home}{versions}",
            node.id,
            node.address
        );
    }
    say!("\nsession           state    acknowledged  uncertainty (us)  skew (ppm)");
    for session in &config.sessions {
        let condition = found.sessions.get(&session.client);
        let state = condition.map_or("unknown", |c| if c.alive { "alive" } else { "SILENT" });
        let acknowledged = condition.map_or("?".into(), |c| c.acknowledged.to_string());
        let manages = if session.client == config.manager { "  manages" } else { "" };
        let known = condition.and_then(|c| c.uncertainty_ns);
        let known = known.map_or("?".into(), |ns| format!("{:.1}", micros(ns)));
        let skew = condition.map_or(0.0, |c| c.skew_ppb as f64 / 1e3);
        let client = session.client;
        say!("{client:016x}  {state:<8} {acknowledged:<13} {known:<17} {skew:<10.1}{manages}");
    }
    let lost = config.regions.iter().filter(|region| region.replicas.is_empty()).count();
    let free: u64 = found.space.values().map(|usage| usage.free_chunks).sum();
    let mut slabs: BTreeMap<u64, u64> = BTreeMap::new();
    for (bytes, count) in found.space.values().flat_map(|usage| &usage.slabs) {
        *slabs.entry(*bytes).or_default() += count;
    }
    say!("\nspace: {} MiB free; slabs by size of object: {slabs:?}", free / 16);
    say!(
        "{} regions, {lost} of them lost; {} petitions wait",
        config.regions.len(),
        found.petitions
    );
}
