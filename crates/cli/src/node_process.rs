//! Memory nodes as processes that end with whoever started them.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

/// A child process that does not outlive this value.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// This program, to be started once more.
pub(crate) fn program() -> Result<PathBuf> {
    std::env::current_exe().context("finding this program")
}

/// Starts a memory node on this machine; where it listens.
pub(crate) fn start(fabric: &str, memory: u64, more: &[OsString]) -> Result<(Running, String)> {
    let mut node = Command::new(program()?)
        .args(["node", "--listen", "127.0.0.1:0", "--memory", &memory.to_string()])
        .args(["--fabric", fabric])
        .args(more)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .context("starting a memory node")?;
    let stdout = node.stdout.take().expect("piped");
    let node = Running(node);
    let mut said = String::new();
    BufReader::new(stdout).read_line(&mut said)?;
    let address = said.trim().strip_prefix("listening on ");
    let address = address.with_context(|| format!("the memory node said '{said}'"))?;
    Ok((node, address.to_owned()))
}
