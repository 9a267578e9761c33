//! Programs that cargo builds with the tests.
//!
//! All of them for the whole workspace, also where one is wanted: for a single package cargo would choose other features of what
//! they share, and build everything again.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::shell::{cargo, output, step};

/// Builds the tests, and the programs that they start.
pub(crate) fn build() -> Result<()> {
    step("build", &mut cargo(&["test", "--workspace", "--locked", "--no-run"]))
}

/// Where the one of that kind (`test`, `example`) and name is, of the package in that directory.
pub(crate) fn find(package: &str, kind: &str, name: &str) -> Result<PathBuf> {
    let args = ["test", "--workspace", "--locked", "--no-run", "--message-format=json"];
    let messages = output(&mut cargo(&args))?;
    let mut found = messages.lines().filter_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        let directory = Path::new(message["manifest_path"].as_str()?).parent()?;
        let target = &message["target"];
        let is_it =
            directory.ends_with(package) && target["kind"][0] == kind && target["name"] == name;
        message["executable"].as_str().filter(|_| is_it).map(PathBuf::from)
    });
    found.next().with_context(|| format!("there is no {kind} {name} of {package}"))
}

/// Examples of the public interface assert what they show.
pub(crate) fn run_examples() -> Result<()> {
    for name in ["bank", "counter", "sessions"] {
        step(name, &mut Command::new(find("farside", "example", name)?))?;
    }
    Ok(())
}
