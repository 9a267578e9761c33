//! `farside node`: clean start and stop.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

struct Node {
    child: Child,
    address: String,
}

impl Node {
    fn start(args: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_farside"))
            .args(["node", "--memory", "64MiB"])
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on ").expect("an address").to_owned();
        Node { child, address }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn signals_stop_a_node_cleanly() {
    for signal in [Signal::INT, Signal::TERM] {
        let mut node = Node::start(&["--listen", "127.0.0.1:0"]);
        let start = Instant::now();
        kill_process(Pid::from_raw(node.child.id() as i32).unwrap(), signal).unwrap();
        let status = node.child.wait().unwrap();
        assert!(status.success(), "{status}");
        assert!(start.elapsed() < Duration::from_secs(2));
        let mut said = String::new();
        node.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(said.contains("stopped"), "{said}");
    }
}

#[test]
fn a_port_in_use_says_what_to_do() {
    let node = Node::start(&["--listen", "127.0.0.1:0"]);
    let second = Command::new(env!("CARGO_BIN_EXE_farside"))
        .args(["node", "--memory", "64MiB", "--listen", &node.address])
        .output()
        .unwrap();
    assert_eq!(second.status.code(), Some(2));
    let said = String::from_utf8_lossy(&second.stderr);
    assert!(said.contains("choose another port"), "{said}");
}

#[test]
fn a_benchmark_uses_a_running_node() {
    let node = Node::start(&["--listen", "127.0.0.1:0"]);
    let url = format!("tcp:{}", node.address);
    let output = Command::new(env!("CARGO_BIN_EXE_farside"))
        .args(["bench", "verbs", "--fabric", "tcp", "--connect", &url, "--threads", "1"])
        .args(["--txns", "500", "--verb", "faa", "--json"])
        .output()
        .unwrap();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report["ops"][0]["ops_per_s"].as_f64().unwrap() > 0.0);
}

/// A file of this test that goes with it.
struct File(std::path::PathBuf);

impl File {
    fn new(name: &str, text: &str) -> Self {
        use std::os::unix::fs::PermissionsExt;
        let path = std::env::temp_dir().join(format!("farside-{name}-{}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        File(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn a_secret_and_tls_work_from_the_command_line() {
    let secret = File::new("shared-secret", "a secret of 24 characters");
    let made = rcgen::generate_simple_self_signed(vec!["memory.test".into()]).unwrap();
    let certificate = File::new("certificate", &made.cert.pem());
    let key = File::new("key", &made.signing_key.serialize_pem());
    let node = Node::start(&[
        "--listen",
        "127.0.0.1:0",
        "--secret-file",
        secret.path(),
        "--tls-cert",
        certificate.path(),
        "--tls-key",
        key.path(),
    ]);
    let bench = |credentials: &[&str]| {
        let url = format!("tcp:{}", node.address);
        Command::new(env!("CARGO_BIN_EXE_farside"))
            .args(["bench", "verbs", "--fabric", "tcp", "--connect", &url, "--threads", "1"])
            .args(["--txns", "200", "--verb", "cas", "--json"])
            .args(credentials)
            .output()
            .unwrap()
    };
    let all = [
        "--secret-file",
        secret.path(),
        "--tls-ca",
        certificate.path(),
        "--tls-name",
        "memory.test",
    ];
    let good = bench(&all);
    assert!(good.status.success(), "{}", String::from_utf8_lossy(&good.stderr));
    let said = |output: std::process::Output| {
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let no_secret = said(bench(&all[2..]));
    assert!(no_secret.contains("it asks for a secret"), "{no_secret}");
    let wrong_name = said(bench(&["--tls-ca", certificate.path(), "--tls-name", "other.test"]));
    assert!(wrong_name.contains("TLS"), "{wrong_name}");
}

/// The CPU time that a process has used.
fn cpu_time(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks: u64 = fields[11..13].iter().map(|ticks| ticks.parse::<u64>().unwrap()).sum();
    Duration::from_millis(ticks * 10)
}

/// Also once it was busy, and while somebody is connected.
#[test]
fn a_node_without_work_uses_no_cpu() {
    let node = Node::start(&["--listen", "127.0.0.1:0"]);
    let url = format!("tcp:{}", node.address);
    let busy = Command::new(env!("CARGO_BIN_EXE_farside"))
        .args(["bench", "verbs", "--fabric", "tcp", "--connect", &url, "--seconds", "0.5"])
        .output()
        .unwrap();
    assert!(busy.status.success());
    let _connection = std::net::TcpStream::connect(&node.address).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    let before = cpu_time(node.child.id());
    std::thread::sleep(Duration::from_secs(5));
    let used = cpu_time(node.child.id()) - before;
    assert!(used <= Duration::from_millis(50), "{used:?} of 5 seconds");
}

#[test]
fn secrets_must_be_kept() {
    use std::os::unix::fs::PermissionsExt;
    let path = std::env::temp_dir().join(format!("farside-secret-{}", std::process::id()));
    let refusal = |mode: u32, text: &str| {
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_farside"))
            .args(["node", "--memory", "1MiB", "--listen", "127.0.0.1:0", "--secret-file"])
            .arg(&path)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let open = refusal(0o644, "a secret of 24 characters");
    assert!(open.contains("chmod 600"), "{open}");
    let short = refusal(0o600, "short");
    assert!(short.contains("head -c 32"), "{short}");
    std::fs::remove_file(&path).unwrap();
}
