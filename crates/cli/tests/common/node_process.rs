//! A node of a pool as a process, in tests.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

pub(crate) fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_raw(child.id() as i32).unwrap(), signal).unwrap();
}

/// A node process, killed when dropped. `VERBOSE` shows what it says.
pub(crate) struct NodeProcess {
    pub(crate) child: Child,
    pub(crate) address: String,
}

impl NodeProcess {
    /// Started by `prefix`, if there is one, such as `ip netns exec NAME`.
    pub(crate) fn start(prefix: &[String], store: &str, listen: &str, lease: Duration) -> Self {
        Self::start_with(prefix, store, listen, lease, &[])
    }

    /// The same with more options.
    pub(crate) fn start_with(
        prefix: &[String],
        store: &str,
        listen: &str,
        lease: Duration,
        more: &[&str],
    ) -> Self {
        let program = env!("CARGO_BIN_EXE_farside").to_owned();
        let command: Vec<String> = prefix.iter().cloned().chain([program]).collect();
        let verbose = std::env::var_os("VERBOSE").is_some();
        let mut child = Command::new(&command[0])
            .args(&command[1..])
            .args(["node", "--memory", "64MiB", "--listen", listen, "--config-store", store])
            .args(["--trust-network", "--lease", &lease.as_millis().to_string()])
            .args(more)
            .stdout(Stdio::piped())
            .stderr(if verbose { Stdio::inherit() } else { Stdio::null() })
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on ").expect("an address").to_owned();
        NodeProcess { child, address }
    }
}

impl Drop for NodeProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
