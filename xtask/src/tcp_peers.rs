//! Verbs over TCP beside UCX's and beside a bare ping-pong of the same bytes, alternating in one run.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Instant;

use anyhow::{Result, ensure};

use crate::peers::{farside, median, ucx};
use crate::setup::ensure_program;
use crate::shell::{cargo, step};

const TRIES: usize = 7;

/// The bytes of a CAS on the wire, and of its answer.
const REQUEST: usize = 40;
const ANSWER: usize = 16;

pub(crate) fn run() -> Result<()> {
    ensure!(ensure_program("ucx_perftest", "ucx-utils"), "nothing to compare with");
    step("build", &mut cargo(&["build", "--release", "--package", "farside-cli"]))?;
    let mut tries: [Vec<f64>; 6] = Default::default();
    for _ in 0..TRIES {
        tries[0].push(farside("tcp", "cas", 8, 1, 1)?.0);
        tries[1].push(ucx("tcp", "ucp_cswap", 8, 1, 200_000)?);
        tries[2].push(ping_pong()?);
        tries[3].push(farside("tcp", "read", 8, 1, 1)?.0);
        tries[4].push(farside("tcp", "cas", 8, 1, 32)?.0);
        tries[5].push(ucx("tcp", "ucp_cswap", 8, 32, 200_000)?);
    }
    let [cas, ucx_cas, bare, read, cas_32, ucx_32] = tries.map(median);
    println!("nanoseconds per verb, median of {TRIES} alternating tries");
    println!("CAS, one outstanding    {cas:8.0}   UCX {ucx_cas:8.0}   bare ping-pong {bare:8.0}");
    println!("READ, one outstanding   {read:8.0}");
    println!("CAS, 32 outstanding     {cas_32:8.0}   UCX {ucx_32:8.0}");
    println!("CAS over UCX            {:8.2}", cas / ucx_cas);
    println!("CAS, READ over bare     {:8.2} {:8.2}", cas / bare, read / bare);
    println!("32 over 1 outstanding   {:8.1} ×", cas / cas_32);
    println!("32 outstanding over UCX {:8.1} ×", ucx_32 / cas_32);
    Ok(())
}

/// Mean nanoseconds of a round trip between two threads that spin on their sockets.
fn ping_pong() -> Result<f64> {
    const ROUNDS: u32 = 100_000;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let server = std::thread::spawn(move || -> std::io::Result<()> {
        let (mut stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let mut bytes = [0; REQUEST];
        for _ in 0..ROUNDS {
            spin_read(&mut stream, &mut bytes)?;
            stream.write_all(&bytes[..ANSWER])?;
        }
        Ok(())
    });
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    let mut bytes = [0; ANSWER];
    let start = Instant::now();
    for _ in 0..ROUNDS {
        stream.write_all(&[0; REQUEST])?;
        spin_read(&mut stream, &mut bytes)?;
    }
    let elapsed = start.elapsed();
    server.join().expect("it does not panic")?;
    Ok(elapsed.as_nanos() as f64 / f64::from(ROUNDS))
}

fn spin_read(stream: &mut TcpStream, bytes: &mut [u8]) -> std::io::Result<()> {
    let mut filled = 0;
    while filled < bytes.len() {
        match stream.read(&mut bytes[filled..]) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(read) => filled += read,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
