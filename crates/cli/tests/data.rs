//! A database from the command line: real processes, a shared file, memory nodes over TCP.

mod common;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use common::{farside, json, refuses};

struct Node(Child);

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start_node() -> (Node, String) {
    let mut node = Command::new(env!("CARGO_BIN_EXE_farside"))
        .args(["node", "--listen", "127.0.0.1:0", "--memory", "32MiB"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut said = String::new();
    BufReader::new(node.stdout.take().unwrap()).read_line(&mut said).unwrap();
    let address = said.trim().strip_prefix("listening on ").expect("it listens").to_owned();
    (Node(node), address)
}

/// What one process writes another reads, and what it deletes is gone.
fn is_a_database(url: &str) {
    let run = |args: &[&str]| farside(&[args, &["--connect", url]].concat());
    assert_eq!(json(&run(&["tables", "--json"])), serde_json::json!({ "tables": [] }));
    assert!(run(&["put", "people", "ada", "lovelace"]).status.success());
    assert!(run(&["put", "people", "alan", "turing"]).status.success());
    assert_eq!(run(&["get", "people", "ada"]).stdout, b"lovelace");
    assert!(run(&["put", "people", "ada", "byron"]).status.success());
    assert_eq!(run(&["get", "people", "ada"]).stdout, b"byron");
    assert_eq!(run(&["tables"]).stdout, b"people\n");
    assert!(run(&["delete", "people", "ada"]).status.success());
    let gone = run(&["get", "people", "ada"]);
    assert_eq!((gone.status.code(), &gone.stdout[..]), (Some(1), &b""[..]));
    assert_eq!(run(&["delete", "people", "ada"]).status.code(), Some(1));
    // A large value, through stdin.
    let value: Vec<u8> = (0..1_000_000u32).map(|n| (n % 251) as u8).collect();
    let mut put = Command::new(env!("CARGO_BIN_EXE_farside"))
        .args(["put", "people", "large", "--connect", url])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    put.stdin.take().unwrap().write_all(&value).unwrap();
    assert!(put.wait().unwrap().success());
    assert_eq!(run(&["get", "people", "large"]).stdout, value);
    let absent = run(&["get", "nothing", "ada"]);
    assert_eq!(absent.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&absent.stderr).contains("there is no table 'nothing'"));
}

#[test]
fn processes_share_a_file() {
    let path = std::env::temp_dir().join(format!("farside-data-{}", std::process::id()));
    let url = format!("file:{}?memory=64MiB", path.display());
    is_a_database(&url);
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn processes_share_memory_nodes_over_tcp() {
    let nodes: Vec<_> = (0..3).map(|_| start_node()).collect();
    let addresses: Vec<&str> = nodes.iter().map(|(_, address)| address.as_str()).collect();
    is_a_database(&format!("tcp:{}", addresses.join(",")));
}

#[test]
fn wrong_urls_and_nodes_that_are_not_there_are_told() {
    refuses(&["tables", "--connect", "http://example"], "expected mem:, file:PATH");
    refuses(&["tables", "--connect", "tcp:127.0.0.1:1"], "cannot open 'tcp:127.0.0.1:1'");
    refuses(&["tables", "--connect", "file:/nowhere/at/all"], "cannot open 'file:/nowhere/at/all'");
    refuses(&["tables", "--connect", "file:/etc/passwd"], "not a Farside segment");
    refuses(&["get", "t", "k", "--connect", "mem:?copies=7"], "expected copies=1 to 5");
    let long = "k".repeat(1025);
    refuses(&["put", "t", &long, "v", "--connect", "mem:"], "a key of 1025 bytes");
}

#[test]
fn the_demo_counts_the_money() {
    let output = farside(&["demo", "--seconds", "1"]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("all accounts together: 1000000"), "{said}");
    assert!(said.contains("the sum was right every time"), "{said}");
    assert!(said.contains("killed another client process"), "{said}");
    assert!(said.contains("all had 3 copies again"), "{said}");
}

/// From memory nodes to a directory and a stream, and from there to other nodes and to a file.
#[test]
fn a_backup_goes_to_a_directory_or_a_stream_and_back() {
    let scratch = std::env::temp_dir().join(format!("farside-backup-{}", std::process::id()));
    let place = |name: &str| scratch.join(name).display().to_string();
    std::fs::create_dir(&scratch).unwrap();
    let (node, other) = (start_node(), start_node());
    let from = format!("tcp:{}", node.1);
    for row in 0..50 {
        let key = format!("key {row}");
        assert!(farside(&["put", "t", &key, "value", "--connect", &from]).status.success());
    }
    let dir = place("dir");
    let made = json(&farside(&["backup", &dir, "--json", "--connect", &from]));
    assert_eq!((&made["tables"], &made["rows"]), (&1.into(), &50.into()));
    refuses(&["backup", &dir, "--connect", &from], "there is something in it");
    assert_eq!(json(&farside(&["restore", &dir, "--check", "--json"])), made);
    let to = format!("tcp:{}", other.1);
    assert_eq!(json(&farside(&["restore", &dir, "--json", "--connect", &to])), made);
    assert_eq!(farside(&["get", "t", "key 49", "--connect", &to]).stdout, b"value");
    refuses(&["restore", &dir, "--connect", &to], "there is a table 't' already");

    let stream = farside(&["backup", "-", "--connect", &to]);
    assert!(String::from_utf8_lossy(&stream.stderr).contains("1 tables, 50 rows"));
    let file = format!("file:{}?memory=64MiB", place("database"));
    let mut restore = Command::new(env!("CARGO_BIN_EXE_farside"))
        .args(["restore", "-", "--connect", &file])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    restore.stdin.take().unwrap().write_all(&stream.stdout).unwrap();
    assert!(restore.wait().unwrap().success());
    assert_eq!(farside(&["get", "t", "key 7", "--connect", &file]).stdout, b"value");

    // A damaged one is named.
    let path = scratch.join("dir/backup");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[200] ^= 16;
    std::fs::write(&path, bytes).unwrap();
    let empty = format!("file:{}?memory=64MiB", place("empty"));
    refuses(&["restore", &dir, "--connect", &empty], "dir/backup: the backup, byte ");
    refuses(&["restore", &place("nowhere"), "--connect", &empty], "nowhere");
    refuses(&["restore", &dir], "--connect <URL>");
    assert!(!scratch.join("empty").exists());
    std::fs::remove_dir_all(&scratch).unwrap();
}

#[test]
fn a_byte_that_was_changed_in_a_file_is_found_by_a_scrub() {
    let path = std::env::temp_dir().join(format!("farside-scrub-{}", std::process::id()));
    let url = format!("file:{}?memory=16MiB", path.display());
    assert!(
        farside(&["put", "t", "key", "a value to be found", "--connect", &url]).status.success()
    );
    let sound = json(&farside(&["scrub", "--connect", &url, "--json"]));
    assert!(sound["ok"] == true && sound["objects"].as_u64() >= Some(3), "{sound}");
    let mut bytes = std::fs::read(&path).unwrap();
    let value = b"a value to be found";
    let at = bytes.windows(value.len()).position(|some| some == value).unwrap();
    bytes[at] ^= 4;
    std::fs::write(&path, bytes).unwrap();
    let found = farside(&["scrub", "--connect", &url]);
    let said = String::from_utf8_lossy(&found.stdout).into_owned();
    assert_eq!(found.status.code(), Some(1), "{said}");
    assert!(said.contains("is damaged: its checksum") && said.contains("1 FLAWS"), "{said}");
    std::fs::remove_file(&path).unwrap();
}
