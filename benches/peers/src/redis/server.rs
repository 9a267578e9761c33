//! A server of our own, without anything on disk.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

pub struct Server {
    process: Child,
    pub socket: PathBuf,
}

impl Server {
    pub fn start(dir: &Path) -> Result<Self> {
        let socket = std::path::absolute(dir.join("redis.sock"))?;
        let mut command = Command::new("redis-server");
        command.args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"]);
        command.arg(&socket).stdout(Stdio::null());
        let process = command.spawn().context("redis-server (Debian package redis-server)")?;
        let mut server = Server { process, socket };
        let start = Instant::now();
        while UnixStream::connect(&server.socket).is_err() {
            ensure!(server.process.try_wait()?.is_none(), "redis-server has ended");
            ensure!(start.elapsed() < Duration::from_secs(10), "redis-server does not answer");
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
