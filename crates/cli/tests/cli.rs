//! The command line: formats, exit codes, messages.

mod common;

use common::{farside, json, refuses};

#[test]
fn bench_verbs_reports_each_verb_as_numbers() {
    for fabric in ["local", "shm", "tcp"] {
        let args =
            ["bench", "verbs", "--fabric", fabric, "--txns", "1000", "--threads", "2", "--json"];
        let report = json(&farside(&args));
        assert_eq!(report["workload"], "verbs");
        assert_eq!(report["fabric"], fabric);
        assert_eq!(report["simulated"], false);
        let ops = report["ops"].as_array().expect("a list");
        for verb in ["read", "write", "cas", "faa", "flush"] {
            assert!(ops.iter().any(|op| op["verb"] == verb), "no {verb}");
        }
        for op in ops {
            for field in ["bytes", "outstanding", "ops_per_s", "mean_us", "p50_us", "p99_us"] {
                assert!(op[field].is_number(), "{field} of {op}");
            }
            assert!(op["ops_per_s"].as_f64().unwrap() > 0.0);
            assert!(op["p50_us"].as_f64().unwrap() <= op["p99_us"].as_f64().unwrap());
        }
    }
}

#[test]
fn several_processes_share_the_work() {
    let args = ["bench", "verbs", "--fabric", "shm", "--compute", "3", "--threads", "1"];
    let output = farside(&[&args[..], &["--seconds", "0.1", "--verb", "faa"]].concat());
    let table = String::from_utf8_lossy(&output.stdout);
    assert!(table.contains("3 processes with 1 thread each"), "{table}");
    assert!(table.contains("FAA"), "{table}");
}

#[test]
fn bad_input_says_what_was_expected() {
    refuses(&["bench", "nonsense"], "verbs");
    refuses(
        &["bench", "verbs", "--fabric", "carrier-pigeon"],
        "there are: local, shm, tcp, rdma, sim:PROFILE",
    );
    refuses(&["bench", "verbs", "--bytes", "12"], "multiple of 8");
    refuses(&["bench", "verbs", "--bytes", "0"], "multiple of 8");
    refuses(&["bench", "verbs", "--seconds", "0"], "between 0.0001 and 86400");
    refuses(&["bench", "verbs", "--threads", "0"], "1..=256");
    refuses(&["bench", "verbs", "--compute", "2"], "--fabric shm");
    refuses(&["bench", "verbs", "--outstanding", "0"], "1..=1024");
    refuses(&["bench", "verbs", "--fabric", "sim:connectx-9"], "there are: connectx-3");
    refuses(&["sim", "--seeds", "5..5"], "A below B");
    refuses(&["sim", "--seeds", "many"], "A..B");
    refuses(&["sim", "--faults", "flood"], "there are: none, all, reorder");
    refuses(&["sim", "--program", "none"], "write-after-read");
    refuses(&["sim", "--trace"], "--trace needs");
    refuses(&["bench-client", "--connect", "shm:/nowhere", "--number", "1"], "No such file");
    refuses(&["bench", "verbs", "--fabric", "tcp", "--connect", "nowhere"], "tcp:HOST:PORT");
    refuses(&["node", "--memory", "12"], "multiple of 8");
    refuses(&["node", "--memory", "200TiB"], "are available on this machine");
    refuses(&["node", "--memory", "1MiB", "--listen", "nonsense"], "HOST:PORT");
    refuses(&["node", "--memory", "1MiB", "--listen", "0.0.0.0:0"], "--secret-file");
    refuses(&["node", "--memory", "1MiB", "--secret-file", "/dev/null"], "not a file");
    let member = ["node", "--memory", "16MiB", "--listen", "127.0.0.1:0", "--config-store"];
    refuses(&[&member[..], &["etcd:nowhere"]].concat(), "expected etcd:HOST:PORT");
    refuses(&["status", "--connect", "sql:here"], "expected etcd:HOST:PORT");
    refuses(&["status", "--connect", "file:/nowhere/at-all"], "there is no pool");
    refuses(&["sim", "--workload", "pool", "--careless"], "--workload litmus");
}

#[test]
fn simulated_benchmarks_repeat_exactly() {
    let args = ["bench", "verbs", "--fabric", "sim:connectx-5", "--compute", "2", "--threads", "3"];
    let args = [&args[..], &["--txns", "200", "--verb", "read", "--json"]].concat();
    let (first, second) = (farside(&args), farside(&args));
    assert_eq!(first.stdout, second.stdout);
    let report = json(&first);
    assert_eq!(report["simulated"], true);
    assert_eq!(report["fabric"], "sim:connectx-5");
}

#[test]
fn sim_reports_seeds_and_a_digest_that_repeats() {
    let args = ["sim", "--seeds", "1..9", "--workload", "litmus", "--json"];
    let report = json(&farside(&args));
    assert_eq!((&report["seeds"], &report["ok"]), (&8.into(), &8.into()));
    assert_eq!(report["failed"], serde_json::json!([]));
    for field in ["committed", "aborted", "unknown"] {
        assert!(report[field].is_number(), "{field}");
    }
    assert!(report["faults"]["tear"].as_u64().unwrap() > 0);
    assert_eq!(report["digest"], json(&farside(&args))["digest"]);
    let other = json(&farside(&["sim", "--seeds", "2..10", "--json"]));
    assert_ne!(report["digest"], other["digest"]);
}

#[test]
fn a_failing_seed_prints_a_command_that_replays_it() {
    let output = farside(&["sim", "--seed", "3", "--program", "two-words", "--careless"]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stdout);
    let (_, command) = said.split_once("replay: farside ").expect("a command to replay it");
    let command: Vec<_> = command.lines().next().unwrap().split(' ').collect();
    let replayed = farside(&command);
    assert_eq!(replayed.status.code(), Some(1));
    let trace = String::from_utf8_lossy(&replayed.stdout);
    assert!(trace.contains("WRITE") && trace.contains("FAILED"), "{trace}");
}

#[test]
fn doctor_names_a_remedy_for_whatever_is_missing() {
    let report = json(&farside(&["doctor", "--json"]));
    let checks = report["checks"].as_array().expect("a list");
    for fabric in ["all", "shm", "tcp", "rdma"] {
        assert!(checks.iter().any(|check| check["fabric"] == fabric), "nothing about {fabric}");
    }
    for check in checks {
        assert_eq!(check["status"] == "ok", check["remedy"].is_null(), "{check}");
    }
}
