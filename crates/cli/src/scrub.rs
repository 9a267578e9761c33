//! `farside scrub`: everything is looked at, whether anybody needs it or not.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Result, ensure};
use clap::Args;
use farside::Scrub;

use crate::data::DataArgs;
use crate::output::say;
use crate::progress::Progress;
use crate::signals::stop_on_signals;

/// Options of `farside scrub`.
#[derive(Args)]
pub(crate) struct ScrubArgs {
    #[command(flatten)]
    data: DataArgs,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Runs `farside scrub`. Something that is wrong is exit status 1.
pub(crate) fn run(args: &ScrubArgs) -> Result<ExitCode> {
    let db = args.data.open()?;
    let stop = stop_on_signals()?;
    let known: Arc<[AtomicU64; 3]> = Arc::default();
    let shown = Arc::clone(&known);
    let progress = Progress::show(move || {
        let [objects, flawed, share] = [0, 1, 2].map(|at| shown[at].load(Ordering::Relaxed));
        format!("scrub: {objects} objects, {flawed} flaws, {share} %")
    });
    let scrub = db.connection().block_on(db.connection().scrub(|scrub| {
        let share = scrub.place * 100 / scrub.whole.max(1);
        for (at, value) in [scrub.objects, scrub.flawed, share].into_iter().enumerate() {
            known[at].store(value, Ordering::Relaxed);
        }
        !stop.load(Ordering::Relaxed)
    }));
    drop(progress);
    let scrub = scrub?;
    ensure!(!stop.load(Ordering::Relaxed), "stopped after {} objects", scrub.objects);
    match args.json {
        true => say!("{}", json(&scrub)),
        false => print(&scrub),
    }
    Ok(ExitCode::from(u8::from(scrub.flawed > 0)))
}

fn json(scrub: &Scrub) -> serde_json::Value {
    let flaws: Vec<_> = scrub.flaws.iter().map(ToString::to_string).collect();
    serde_json::json!({
        "ok": scrub.flawed == 0, "objects": scrub.objects, "bytes": scrub.bytes,
        "flawed": scrub.flawed, "flaws": flaws,
    })
}

fn print(scrub: &Scrub) {
    for flaw in &scrub.flaws {
        say!("{flaw}");
    }
    let (objects, mib) = (scrub.objects, scrub.bytes >> 20);
    match scrub.flawed {
        0 => say!("{objects} objects, {mib} MiB on all nodes: nothing is wrong"),
        flawed => say!(
            "{objects} objects, {mib} MiB on all nodes: {flawed} FLAWS; take a backup, and restore it elsewhere: what has a \
             sound copy is read there"
        ),
    }
}
