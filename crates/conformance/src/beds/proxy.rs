//! A process between clients and a node that splits, delays, stalls and cuts their streams.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use farside_fabric::runtime::Random;

/// The first argument of a program that is to be a proxy; then come target, seed, and how many pieces
/// in a million cut the connection.
pub const PROXY: &str = "conformance-proxy";

/// A proxy in a process of its own, which ends with this.
#[derive(Debug)]
pub struct Proxy {
    child: Child,
    /// Where it listens.
    pub address: SocketAddr,
}

impl Proxy {
    /// A proxy in front of `target`.
    pub fn start(program: &Path, target: SocketAddr, seed: u64, cuts: u32) -> Result<Self> {
        let mut child = Command::new(program)
            .args([PROXY, &target.to_string(), &seed.to_string(), &cuts.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting a proxy")?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line)?;
        let address = line.trim().parse().with_context(|| format!("a proxy said '{line}'"))?;
        Ok(Proxy { child, address })
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The whole life of a proxy process; `args` are those behind [`PROXY`].
pub fn be_proxy(args: &[String]) -> Result<()> {
    let [target, seed, cuts] = args else { bail!("a proxy needs TARGET SEED CUTS") };
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    let (target, seed, cuts) = (target.parse::<SocketAddr>()?, seed.parse::<u64>()?, cuts.parse()?);
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?);
    for (number, client) in (0u64..).zip(listener.incoming()) {
        let Ok(client) = client else { continue };
        // A node that is gone looks like one: the connection ends.
        let Ok(node) = TcpStream::connect(target) else { continue };
        client.set_nodelay(true)?;
        node.set_nodelay(true)?;
        for (side, from, to) in [(0, client.try_clone()?, node.try_clone()?), (1, node, client)] {
            let random = Random::new(seed.wrapping_mul(1000) + number * 2 + side);
            std::thread::spawn(move || pass_on(from, to, random, cuts));
        }
    }
    Ok(())
}

fn pass_on(mut from: TcpStream, mut to: TcpStream, mut random: Random, cuts: u32) {
    let mut bytes = vec![0; 64 << 10];
    while let Ok(read @ 1..) = from.read(&mut bytes) {
        let mut rest = &bytes[..read];
        while !rest.is_empty() {
            // Pieces of any size, now and then after a while.
            let piece = match random.below(8) {
                0 => 1 + random.below(rest.len() as u64) as usize,
                _ => rest.len(),
            };
            match random.below(10_000) {
                0..300 => std::thread::sleep(Duration::from_micros(random.below(400))),
                300..302 => std::thread::sleep(Duration::from_millis(random.below(40))),
                _ => {}
            }
            if random.below(1_000_000) < u64::from(cuts) || to.write_all(&rest[..piece]).is_err() {
                let _ = from.shutdown(Shutdown::Both);
                let _ = to.shutdown(Shutdown::Both);
                return;
            }
            rest = &rest[piece..];
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}
