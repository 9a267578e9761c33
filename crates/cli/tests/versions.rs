//! A pool of real processes with a version cache at a node of its own, which may die.

#[path = "common/node_process.rs"]
mod node_process;

use std::process::Command;
use std::time::{Duration, Instant};

use node_process::{NodeProcess, signal};
use rustix::process::Signal;
use serde_json::Value;

const LEASE: Duration = Duration::from_millis(200);

/// No step takes longer.
const LIMIT: Duration = Duration::from_secs(20);

/// What it prints, or why it does not.
fn farside(args: &[&str]) -> Result<Value, String> {
    let output = Command::new(env!("CARGO_BIN_EXE_farside")).args(args).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).map_err(|why| format!("{why}: {said}"))
}

/// What the pool says of itself when it is as wanted.
fn wait_for(pool: &str, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    let since = Instant::now();
    loop {
        let status = farside(&["status", "--json", "--connect", pool]);
        match status {
            Ok(status) if is_so(&status) => return status,
            other => assert!(since.elapsed() < LIMIT, "no {what}: {other:?}"),
        }
        std::thread::sleep(LEASE / 4);
    }
}

/// Marks that were set for each transaction.
fn marks(pool: &str) -> f64 {
    let pool = format!("{pool}?protocol=ford-lv-node&copies=2");
    let size = ["--accounts", "500", "--txns", "600", "--threads", "2"];
    let report =
        farside(&[&["bench", "smallbank", "--json", "--connect", &pool], &size[..]].concat());
    let report = report.unwrap();
    assert_eq!(report["invariants"], "ok");
    assert_eq!(report["committed"], 600);
    report["per_txn"]["faa"].as_f64().unwrap()
}

#[test]
fn versions_are_compared_at_a_node_until_it_dies() {
    let dir = std::env::temp_dir().join(format!("farside-versions-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let pool = format!("pool:{}", dir.join("pool").display());
    let here = "127.0.0.1:0";
    let start = || NodeProcess::start(&[], &pool, here, LEASE);
    let members = |count: usize| {
        move |status: &Value| {
            status["ok"] == true && status["members"].as_array().is_some_and(|it| it.len() == count)
        }
    };
    let _nodes = [start(), start()];
    wait_for(&pool, "two members", members(2));
    let cache = NodeProcess::start_with(&[], &pool, here, LEASE, &["--versions"]);
    wait_for(&pool, "version cache", members(3));
    assert!(marks(&pool) > 2.0, "whoever writes marks what it writes, and takes that back");
    let status = wait_for(&pool, "version cache", members(3));
    let of_cache = status["members"].as_array().unwrap().iter().find(|it| it["versions"] == true);
    let of_cache = of_cache.expect("it is a member");
    assert_eq!(of_cache["address"], cache.address);
    assert_eq!(of_cache["copies"], 0, "it takes no regions");
    // All are on this host, and have the clock of the node that has it.
    let uncertain = |session: &&Value| session["uncertainty_us"] != 0.0;
    let sessions = status["leases"].as_array().unwrap();
    assert!(!sessions.is_empty());
    let alive = sessions.iter().filter(|session| session["alive"] == true);
    assert_eq!(alive.clone().find(uncertain), None);
    signal(&cache.child, Signal::KILL);
    wait_for(&pool, "pool without the cache", members(2));
    assert_eq!(marks(&pool), 0.0, "there is nothing to mark");
    std::fs::remove_dir_all(&dir).unwrap();
}
