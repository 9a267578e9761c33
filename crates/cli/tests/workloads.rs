//! Transactions on the command line: what is measured, what is recorded, and what is judged.

mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{farside, json, refuses};
use serde_json::Value;

/// A file that is gone when the test is over.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        Scratch(std::env::temp_dir().join(format!("farside-{name}-{}", std::process::id())))
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("plain names")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).expect("a JSON object a line")).collect()
}

/// Small enough for a short run.
fn size(workload: &str) -> &'static [&'static str] {
    match workload {
        "kvs" => &["--keys", "5000"],
        "smallbank" => &["--accounts", "2000"],
        "tatp" => &["--subscribers", "500"],
        _ => &[],
    }
}

const WORKLOADS: [&str; 6] = ["kvs", "smallbank", "tatp", "list-append", "counter", "transfer"];

/// What `bench` says is what its history says, counted by somebody else.
#[test]
fn the_numbers_of_a_run_are_those_of_its_history() {
    let all = ["reference", "farside", "ford", "ford-lv", "farm", "drtm-h"];
    for (workload, protocol) in WORKLOADS.iter().flat_map(|w| all.map(|protocol| (*w, protocol))) {
        let history = Scratch::new(&format!("{workload}-{protocol}"));
        let args = ["bench", workload, "--protocol", protocol, "--txns", "5000", "--threads", "2"];
        let more = ["--coordinators", "4", "--json", "--history", history.path()];
        let report = json(&farside(&[&args[..], &more, size(workload)].concat()));
        assert_eq!(
            (&report["workload"], &report["protocol"]),
            (&workload.into(), &protocol.into())
        );
        // One round trip to look, and for those who write more.
        let trips = report["per_txn"]["round_trips"].as_f64().unwrap();
        assert_eq!(trips >= 1.0, protocol != "reference", "{workload}: {trips}");
        assert_eq!(report["invariants"], "ok");
        let attempts = lines(&history.0);
        let mut outcomes: BTreeMap<&str, u64> = BTreeMap::new();
        for attempt in &attempts {
            *outcomes.entry(attempt["outcome"].as_str().unwrap()).or_default() += 1;
            assert!(attempt["begin"].as_u64() <= attempt["end"].as_u64());
        }
        assert_eq!(report["committed"].as_u64(), Some(5000));
        assert_eq!(outcomes["committed"], 5000);
        let aborted = outcomes.get("aborted").copied().unwrap_or(0);
        assert_eq!(report["aborted"].as_u64(), Some(aborted), "{workload}");
        let rate = aborted as f64 / (5000 + aborted) as f64;
        assert!((report["abort_rate"].as_f64().unwrap() - rate).abs() < 1e-9);
        let by_type = report["by_type"].as_object().unwrap();
        let sum =
            |field: &str| by_type.values().map(|kind| kind[field].as_u64().unwrap()).sum::<u64>();
        assert_eq!((sum("committed"), sum("aborted")), (5000, aborted));
        for field in ["p50", "p99", "p999", "max"] {
            assert!(report["latency_us"][field].as_f64().unwrap() > 0.0, "{workload}: {field}");
        }
        // No transaction took longer than from the first begin to the last end.
        let begin =
            attempts.iter().map(|attempt| attempt["begin"].as_u64().unwrap()).min().unwrap();
        let end = attempts.iter().map(|attempt| attempt["end"].as_u64().unwrap()).max().unwrap();
        let span_us = (end - begin) as f64 / 1e3;
        assert!(report["latency_us"]["max"].as_f64().unwrap() <= span_us * 1.01 + 1.0);
        assert!(report["seconds"].as_f64().unwrap() * 1e6 >= span_us * 0.99);
        // The others have no opacity: what aborted attempts read does not count.
        let opaque = matches!(protocol, "reference" | "farside");
        let level = if opaque { "strict" } else { "strict-committed" };
        let verdict = json(&farside(&["check", history.path(), "--level", level, "--json"]));
        assert_eq!(verdict["transactions"].as_u64(), Some(attempts.len() as u64), "{protocol}");
        assert_eq!(verdict["verdict"], "strict-serializable", "{workload}: {verdict}");
        assert_eq!(verdict["anomalies"], serde_json::json!([]));
    }
}

#[test]
fn a_simulated_run_repeats_exactly() {
    for workload in ["smallbank", "list-append"] {
        let run = |seed: &str| {
            let history = Scratch::new(&format!("sim-{workload}-{seed}"));
            let args = ["bench", workload, "--fabric", "sim:connectx-5", "--txns", "2000"];
            let more = ["--threads", "3", "--seed", seed, "--json", "--history", history.path()];
            let report = json(&farside(&[&args[..], &more, size(workload)].concat()));
            assert_eq!(report["simulated"], true);
            (report, std::fs::read(&history.0).unwrap())
        };
        let (first, second, other) = (run("7"), run("7"), run("8"));
        assert!(first == second, "{workload} does not repeat itself");
        assert!(first.1 != other.1, "{workload} does not depend on its seed");
    }
    let args = ["sim", "--workload", "list-append", "--seeds", "1..6", "--txns", "200", "--json"];
    let (one, two) = (json(&farside(&args)), json(&farside(&args)));
    assert_eq!((&one, one["ok"].as_u64(), one["committed"].as_u64()), (&two, Some(5), Some(1000)));
}

/// Transactions arrive at a rate, whether those before are over or not.
#[test]
fn an_open_loop_keeps_its_rate() {
    let args = ["bench", "counter", "--rate", "2000", "--seconds", "1", "--json", "--keys", "1000"];
    let report = json(&farside(&args));
    let rate = report["throughput_tps"].as_f64().unwrap();
    assert!((1500.0..2500.0).contains(&rate), "{rate}");
}

#[test]
fn what_is_no_history_gets_no_verdict() {
    let history = Scratch::new("damaged");
    let good = r#"{"id":1,"proc":1,"begin":1,"end":2,"outcome":"committed","ops":[{"f":"append","k":"x","v":1}]}"#;
    let second = good.replace("\"id\":1", "\"id\":2").replace("\"v\":1", "\"v\":2");
    let whole = format!("{good}\n{second}\n");
    let check = |text: &[u8], expected: &str| {
        std::fs::write(&history.0, text).unwrap();
        refuses(&["check", history.path(), "--json"], expected);
    };
    check(&whole.as_bytes()[..whole.len() - 20], "line 2: ends in the middle");
    check(whole.replace("\"id\":2", "\"id\":1").as_bytes(), "line 2: another attempt has the id 1");
    check(whole.replace("\"v\":2", "\"v\":1").as_bytes(), "line 2: 1 is appended");
    check(b"", "no attempt");
    check(b"\x00\xff\xfe garbage", "line 1");
    check(b"[1,2,3]\n", "line 1");
    check(b"<html></html>\n", "line 1: is not an attempt");
    let register = second.replace("append", "w");
    check(format!("{good}\n{register}\n").as_bytes(), "line 2: key \"x\" is a list here");
    let mut flipped = whole.clone().into_bytes();
    flipped[whole.find("committed").unwrap()] = b'k';
    check(&flipped, "line 1: is not an attempt");
    refuses(&["check", "/nowhere/at/all"], "opening /nowhere/at/all");
    refuses(&["check", history.path(), "--level", "perfect"], "session-guarantees");
    std::fs::write(&history.0, &whole).unwrap();
    assert_eq!(json(&farside(&["check", history.path(), "--json"]))["transactions"], 2);
}

#[test]
fn a_violation_is_told_and_exits_with_one() {
    let history = Scratch::new("violation");
    let append = r#"{"id":1,"proc":1,"begin":1,"end":2,"outcome":"committed","ops":[{"f":"append","k":"x","v":1}]}"#;
    let read = r#"{"id":2,"proc":2,"begin":3,"end":4,"outcome":"committed","ops":[{"f":"r","k":"x","v":[]}]}"#;
    std::fs::write(&history.0, format!("{append}\n{read}\n")).unwrap();
    let output = farside(&["check", history.path()]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("stale read") && said.contains("-rt->") && said.contains("-rw->"),
        "{said}"
    );
    let weaker = json(&farside(&["check", history.path(), "--level", "serializable", "--json"]));
    assert_eq!(weaker["verdict"], "serializable");
}

#[test]
fn options_that_do_not_fit_are_refused() {
    refuses(&["bench", "kvs", "--accounts", "5"], "it has --keys, --value-size");
    refuses(&["bench", "kvs", "--skew", "11"], "0 (even) to 10");
    refuses(&["bench", "kvs", "--skew", "NaN"], "0 (even) to 10");
    refuses(&["bench", "kvs", "--read-share", "101"], "0 to 100");
    refuses(&["bench", "kvs", "--keys", "3", "--objects", "4"], "no more than there are keys");
    refuses(&["bench", "kvs", "--value-size", "4"], "8 to 1048576");
    refuses(&["bench", "tatp", "--subscribers", "0"], "at least 1");
    let oracle = ["bench", "smallbank", "--protocol", "reference"];
    refuses(&[&oracle[..], &["--fabric", "tcp"]].concat(), "expected local or sim:PROFILE");
    refuses(&["bench", "smallbank", "--nodes", "2"], "3 replicas need as many nodes");
    refuses(&["bench", "smallbank", "--level", "loose"], "snapshot-nonstrict");
    refuses(&["bench", "smallbank", "--without", "parallel-undo"], "farside has not got that");
    refuses(
        &["bench", "smallbank", "--fabric", "tcp", "--protocol", "ford-lv"],
        "sound only where",
    );
    let lv = ["bench", "smallbank", "--fabric", "sim:connectx-5", "--protocol", "ford-lv"];
    refuses(&[&lv[..], &["--compute", "2"]].concat(), "--without version-cache");
    refuses(&["bench", "smallbank", "--durability", "flush"], "expected --fabric tcp");
    let durable = ["sim", "--workload", "smallbank", "--seed", "1", "--durability", "flush"];
    refuses(&[&durable[..], &["--faults", "kill"]].concat(), "the power is what fails");
    refuses(&["bench", "smallbank", "--protocol", "magic"], "reference");
    refuses(&["bench", "smallbank", "--history", "/nowhere/at/all"], "--history /nowhere/at/all");
    refuses(&["bench", "smallbank", "--rate", "0"], "transactions per second");
    let sim = ["sim", "--workload", "smallbank", "--protocol", "reference"];
    refuses(&[&sim[..], &["--faults", "tear"]].concat(), "no verbs");
}

/// Ctrl-C ends a run, and what it has found until then is told.
#[test]
fn an_interrupted_run_tells_what_it_has() {
    let child = Command::new(env!("CARGO_BIN_EXE_farside"))
        .args(["bench", "counter", "--seconds", "60", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(800));
    let status = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(status.unwrap().success());
    let output = child.wait_with_output().unwrap();
    let report = json(&output);
    assert_eq!(report["invariants"], "ok");
    assert!(report["seconds"].as_f64().unwrap() < 30.0);
}

/// `farside … | head` ends quietly.
#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let command = format!(
        "{} sim --workload counter --seeds 1..200 --txns 5 | head -n 1",
        env!("CARGO_BIN_EXE_farside")
    );
    let output = Command::new("sh").args(["-c", &command]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!said.contains("panicked"), "{said}");
}
