//! The same seeds give the same digest: in debug and in release builds, and side by side on a busy
//! machine.

use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::programs;
use crate::shell::{cargo, root, step};

const SEEDS: &str = "1..40";

pub(crate) fn run() -> Result<()> {
    // The tests' own, which is there already; and one that is optimized, without what only makes it faster still.
    programs::build()?;
    let optimized = ["build", "--locked", "--profile", "quick", "--package", "farside-cli"];
    step("optimized build", &mut cargo(&optimized))?;
    let start = |profile: &str| {
        Command::new(root().join("target").join(profile).join("farside"))
            .args(["sim", "--seeds", SEEDS, "--json"])
            .stdout(Stdio::piped())
            .spawn()
            .context("starting the simulator")
    };
    // All at once: they disturb each other.
    let running = ["debug", "quick", "quick"].map(start);
    let mut digests = Vec::new();
    for child in running {
        digests.push(digest(child?)?);
    }
    ensure!(digests.windows(2).all(|pair| pair[0] == pair[1]), "digests differ: {digests:?}");
    eprintln!("digest of seeds {SEEDS} in debug and optimized builds: {}", digests[0]);
    Ok(())
}

fn digest(child: Child) -> Result<String> {
    let output = child.wait_with_output()?;
    let report: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    ensure!(output.status.success(), "a seed failed: {report}");
    Ok(report["digest"].as_str().context("no digest")?.to_owned())
}
