//! Running the peers that we compare with.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::shell::{output, root};

const PORT: &str = "13371";

/// Mean nanoseconds per verb, and verbs per second.
pub(crate) fn farside(
    fabric: &str,
    verb: &str,
    bytes: u32,
    threads: u32,
    outstanding: u32,
) -> Result<(f64, f64)> {
    let mut command = Command::new(root().join("target/release/farside"));
    command.args(["bench", "verbs", "--fabric", fabric, "--json"]);
    command.args(["--outstanding", &outstanding.to_string()]);
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
pub(crate) fn ucx(
    transport: &str,
    test: &str,
    bytes: u32,
    outstanding: u32,
    count: u32,
) -> Result<f64> {
    let perftest = || {
        let mut command = Command::new("ucx_perftest");
        command.env("UCX_TLS", transport).args(["-p", PORT]);
        command
    };
    let server = perftest().stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let _server = Server(server);
    std::thread::sleep(Duration::from_millis(500));
    let (bytes, outstanding, count) =
        (bytes.to_string(), outstanding.to_string(), count.to_string());
    let args = ["127.0.0.1", "-t", test, "-s", &bytes, "-n", &count, "-O", &outstanding, "-f"];
    let printed = output(perftest().args(args))?;
    let last = printed.lines().rev().find(|line| !line.trim().is_empty());
    let rate = last.and_then(|line| line.split_whitespace().last()?.parse::<f64>().ok());
    Ok(1e9
        / rate
            .with_context(|| format!("no message rate in what ucx_perftest printed: {printed}"))?)
}

pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
