//! READ and CAS over shared memory beside UCX's own benchmark, alternating in one run.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::setup::ensure_program;
use crate::shell::{cargo, output, root, step};

const TRIES: usize = 5;
const PORT: &str = "13371";

pub(crate) fn run() -> Result<()> {
    ensure!(ensure_program("ucx_perftest", "ucx-utils"), "nothing to compare with");
    step("build", &mut cargo(&["build", "--release", "--package", "farside-cli"]))?;
    println!("mean time of one verb, one outstanding, median of {TRIES} alternating tries");
    let mut slower = Vec::new();
    for (verb, bytes, test) in [("read", 64, "ucp_get"), ("cas", 8, "ucp_cswap")] {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..TRIES {
            ours.push(farside(verb, bytes, 1)?.0);
            theirs.push(ucx(test, bytes)?);
        }
        let (ours, theirs) = (median(ours), median(theirs));
        println!(
            "{verb:<5} {bytes:>3} bytes   farside shm {ours:6.1} ns   UCX posix {theirs:6.1} ns   ratio {:.2}",
            ours / theirs
        );
        if ours > theirs {
            slower.push(verb);
        }
    }
    let scaling = (0..TRIES)
        .map(|_| Ok(farside("read", 64, 2)?.1 / farside("read", 64, 1)?.1))
        .collect::<Result<Vec<_>>>()?;
    println!("read   64 bytes   two threads on disjoint memory: {:.2} × one", median(scaling));
    ensure!(slower.is_empty(), "slower than UCX: {}", slower.join(", "));
    Ok(())
}

/// Mean nanoseconds per verb, and verbs per second.
fn farside(verb: &str, bytes: u32, threads: u32) -> Result<(f64, f64)> {
    let mut command = Command::new(root().join("target/release/farside"));
    command.args(["bench", "verbs", "--fabric", "shm", "--outstanding", "1", "--json"]);
    command.args(["--seconds", "1", "--threads", &threads.to_string()]);
    command.args(["--verb", verb, "--bytes", &bytes.to_string()]);
    let report: serde_json::Value = serde_json::from_str(&output(&mut command)?)?;
    let line = &report["ops"][0];
    let number = |field: &str| line[field].as_f64().with_context(|| format!("no {field}"));
    Ok((number("mean_us")? * 1e3, number("ops_per_s")?))
}

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Mean nanoseconds per operation, from the message rate that `ucx_perftest` reports.
fn ucx(test: &str, bytes: u32) -> Result<f64> {
    let perftest = || {
        let mut command = Command::new("ucx_perftest");
        command.env("UCX_TLS", "posix,self").args(["-p", PORT]);
        command
    };
    let server = perftest().stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let _server = Server(server);
    std::thread::sleep(Duration::from_millis(500));
    let bytes = bytes.to_string();
    let args = ["127.0.0.1", "-t", test, "-s", &bytes, "-n", "20000000", "-f"];
    let printed = output(perftest().args(args))?;
    let last = printed.lines().rev().find(|line| !line.trim().is_empty());
    let rate = last.and_then(|line| line.split_whitespace().last()?.parse::<f64>().ok());
    Ok(1e9
        / rate
            .with_context(|| format!("no message rate in what ucx_perftest printed: {printed}"))?)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
