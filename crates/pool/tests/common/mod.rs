//! A real etcd for tests.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// An etcd process on loopback, with its data in a directory that goes with it.
pub(crate) struct Etcd {
    child: Option<Child>,
    directory: std::path::PathBuf,
    ports: [u16; 2],
    /// Where it listens besides loopback.
    host: Option<std::net::IpAddr>,
}

impl Etcd {
    /// Listening on loopback, and perhaps at another address of this host. `None`, with a printed reason,
    /// where there is no etcd.
    pub(crate) fn start(name: &str, host: Option<std::net::IpAddr>) -> Option<Self> {
        let directory =
            std::env::temp_dir().join(format!("farside-etcd-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        let mut etcd = Etcd { child: None, directory, ports: [free_port(), free_port()], host };
        if Command::new("etcd").arg("--version").stdout(Stdio::null()).status().is_err() {
            println!("skipped: etcd is not installed (package etcd-server)");
            return None;
        }
        etcd.run();
        Some(etcd)
    }

    /// Starts it, again if need be, and waits until it is ready.
    pub(crate) fn run(&mut self) {
        let [client, peer] = self.ports.map(|port| format!("http://127.0.0.1:{port}"));
        let elsewhere = self.host.map(|host| format!(",http://{host}:{}", self.ports[0]));
        let listen = format!("{client}{}", elsewhere.unwrap_or_default());
        let mut child = Command::new("etcd")
            .arg("--data-dir")
            .arg(&self.directory)
            .args(["--listen-client-urls", &listen, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("default={peer}"), "--log-outputs", "stderr"])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("starting etcd");
        let log = BufReader::new(child.stderr.take().expect("piped"));
        let mut lines = log.lines();
        let ready =
            lines.by_ref().map_while(Result::ok).any(|line| line.contains("ready to serve"));
        assert!(ready, "etcd ended");
        // Whoever does not read its log stops it.
        std::thread::spawn(move || lines.for_each(drop));
        self.child = Some(child);
    }

    /// Ends it with SIGKILL; its data stay.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// HOST:PORT for clients.
    pub(crate) fn address(&self) -> String {
        let host = self.host.unwrap_or(std::net::IpAddr::from([127, 0, 0, 1]));
        format!("{host}:{}", self.ports[0])
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

pub(crate) fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("bound").port()
}
