//! What actors do: small clients that use far memory together with a case.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, Result, bail, ensure};
use farside_fabric::{MAX_VERB_BYTES, MaskedCas, Queue, Worker};

use crate::bed::service;

/// Where actors say that they are ready (FAA) and wait for the start (READ), on node 0.
pub const READY: u64 = 0;
/// How many words [`Role::WriteLarge`] writes at once.
pub const LARGE_WORDS: usize = MAX_VERB_BYTES as usize / 8;
/// Becomes 1 when all may start.
pub const START: u64 = 8;

/// What kind of thing an actor does; `at` and `count` are those of its [`Job`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// FAA 1 at `at`, `count` times.
    Add,
    /// CAS the word at `at` from n to n + 1, until `count` of them succeeded.
    CasAdd,
    /// [FAA at `at`; FAA at `at + 64`], `count` times.
    AddPairs,
    /// [WRITE i at `at`; WRITE i at `at + 64`], for i from 1 to `count`.
    WritePairs,
    /// WRITE a [`pattern`] of 64 words at `at`, for i from 1 to `count`.
    WritePatterns,
    /// Takes the lock at `at` by CAS with a READ of the counter behind it, and adds 1 to it, `count`
    /// times.
    LockAdd,
    /// One side of Dekker's handshake: [WRITE i here; READ there], `count` times.
    WriteThenRead,
    /// The same with [WRITE i here; a CAS there that never matches], masked where there is one.
    WriteThenAtomic,
    /// The same with [FAA here; READ there].
    AtomicThenRead,
    /// WRITE the largest patterns there are at `at`, `count` times.
    WriteLarge,
    /// Calls the services, `count` times.
    Call,
}

const ROLES: [(Role, &str); 11] = [
    (Role::Add, "add"),
    (Role::CasAdd, "cas-add"),
    (Role::AddPairs, "add-pairs"),
    (Role::WritePairs, "write-pairs"),
    (Role::WritePatterns, "write-patterns"),
    (Role::LockAdd, "lock-add"),
    (Role::WriteThenRead, "write-then-read"),
    (Role::WriteThenAtomic, "write-then-atomic"),
    (Role::AtomicThenRead, "atomic-then-read"),
    (Role::WriteLarge, "write-large"),
    (Role::Call, "call"),
];

/// What an actor is to do. Its text form is `ROLE NODE AT COUNT ME`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Job {
    /// The kind of work.
    pub role: Role,
    /// The node it works on.
    pub node: u16,
    /// The address it works at.
    pub at: u64,
    /// How often.
    pub count: u64,
    /// Its number among the actors of the case, from 1 on.
    pub me: u64,
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (_, role) =
            ROLES.iter().find(|(role, _)| *role == self.role).expect("all roles are named");
        write!(f, "{role} {} {} {} {}", self.node, self.at, self.count, self.me)
    }
}

impl FromStr for Job {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let parts: Vec<&str> = text.split(' ').collect();
        let &[role, node, at, count, me] = parts.as_slice() else {
            bail!("'{text}' is not a job: expected ROLE NODE AT COUNT ME");
        };
        let known = ROLES.iter().find(|(_, name)| *name == role);
        let (role, _) = known.with_context(|| format!("'{role}' is not a role"))?;
        Ok(Job {
            role: *role,
            node: node.parse()?,
            at: at.parse()?,
            count: count.parse()?,
            me: me.parse()?,
        })
    }
}

/// 64 words that name `i`, the last one a checksum over the others.
pub fn pattern(i: u64) -> [u64; 64] {
    let mut words =
        std::array::from_fn(|k| i.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(k as u32));
    words[63] = checksum(&words[..63]);
    words
}

/// Tells a torn copy from a whole one.
pub fn checksum(words: &[u64]) -> u64 {
    words
        .iter()
        .fold(17, |sum: u64, word| (sum ^ word).wrapping_mul(0xff51_afd7_ed55_8ccd).rotate_left(31))
}

/// Does a job, after the case gave the start.
pub async fn work(job: Job, worker: &Worker, queues: &[Queue]) -> Result<()> {
    say_ready(worker, &queues[0]).await?;
    let node = queues.get(job.node as usize).context("no such node")?;
    let Job { at, count, me, .. } = job;
    match job.role {
        Role::Add => {
            for _ in 0..count {
                let mut round = worker.round();
                round.to(node).faa(at, 1);
                round.ring().await?;
            }
        }
        Role::CasAdd => cas_add(worker, node, at, count).await?,
        Role::AddPairs => {
            for _ in 0..count {
                let mut round = worker.round();
                round.to(node).faa(at, 1);
                round.to(node).faa(at + 64, 1);
                round.ring().await?;
            }
        }
        Role::WritePairs => {
            for i in 1..=count {
                let mut round = worker.round();
                round.to(node).write(at, &[i]);
                round.to(node).write(at + 64, &[i]);
                round.ring().await?;
            }
        }
        Role::WritePatterns => {
            for i in 1..=count {
                let mut round = worker.round();
                round.to(node).write(at, &pattern(i));
                round.ring().await?;
            }
        }
        Role::LockAdd => {
            for _ in 0..count {
                lock_add(worker, node, at, me).await?;
            }
        }
        Role::WriteThenRead | Role::WriteThenAtomic | Role::AtomicThenRead => {
            dekker(worker, node, &job).await?;
        }
        Role::WriteLarge => {
            for i in 1..=count {
                let mut round = worker.round();
                round.to(node).write(at, &vec![i; LARGE_WORDS]);
                round.ring().await?;
            }
        }
        Role::Call => call(node, count, me).await?,
    }
    Ok(())
}

async fn say_ready(worker: &Worker, node: &Queue) -> Result<()> {
    let mut round = worker.round();
    round.to(node).faa(READY, 1);
    round.ring().await?;
    wait_for(worker, node, START, 1).await
}

/// Waits until the word at `at` has at least the value `least`.
pub async fn wait_for(worker: &Worker, node: &Queue, at: u64, least: u64) -> Result<()> {
    loop {
        let mut round = worker.round();
        let word = round.to(node).read(at, 8);
        if round.ring().await?[word][0] >= least {
            return Ok(());
        }
        worker.sleep(std::time::Duration::from_micros(50)).await;
    }
}

async fn cas_add(worker: &Worker, node: &Queue, at: u64, count: u64) -> Result<()> {
    let mut guess = 0;
    let mut added = 0;
    while added < count {
        let mut round = worker.round();
        let old = round.to(node).cas(at, guess, guess + 1);
        let found = round.ring().await?[old];
        added += u64::from(found == guess);
        guess = if found == guess { guess + 1 } else { found };
    }
    Ok(())
}

/// The lock at `at`, the counter behind it at `at + 64`.
async fn lock_add(worker: &Worker, node: &Queue, at: u64, me: u64) -> Result<()> {
    loop {
        let mut round = worker.round();
        let lock = round.to(node).cas(at, 0, me);
        let counter = round.to(node).read(at + 64, 8);
        let done = round.ring().await?;
        if done[lock] != 0 {
            drop(done);
            worker.yield_now().await;
            continue;
        }
        let value = done[counter][0] + 1;
        let mut round = worker.round();
        round.to(node).write(at + 64, &[value]);
        let release = round.to(node).cas(at, me, 0);
        ensure!(round.ring().await?[release] == me, "somebody took a lock that was held");
        return Ok(());
    }
}

/// Both sides announce their round's number at their own place and then look at the other's, in one
/// doorbell. A side that does not see the other's number yet leaves a note; both doing so in the
/// same round would mean that each look overtook the announcement before it.
async fn dekker(worker: &Worker, node: &Queue, job: &Job) -> Result<()> {
    let side = |who: u64| job.at + who * 4096;
    let (mine, other) = (side(job.me), side(3 - job.me));
    for i in 1..=job.count {
        let missed = announce_and_look(worker, node, job.role, i, mine, other).await? < i;
        let mut round = worker.round();
        // Two WRITEs: one of two words could tear, and did, in the simulator.
        round.to(node).write(mine + 64, &[u64::from(missed)]);
        round.to(node).write(mine + 72, &[i]);
        round.ring().await?;
        wait_for_peer(worker, node, other + 72, i).await?;
        let mut round = worker.round();
        let note = round.to(node).read(other + 64, 8);
        let other_missed = round.ring().await?[note][0] == 1;
        ensure!(!(missed && other_missed), "round {i}: both looks overtook the announcement");
        let mut round = worker.round();
        round.to(node).write(mine + 128, &[i]);
        round.ring().await?;
        wait_for_peer(worker, node, other + 128, i).await?;
    }
    Ok(())
}

async fn announce_and_look(
    worker: &Worker,
    node: &Queue,
    role: Role,
    i: u64,
    mine: u64,
    other: u64,
) -> Result<u64> {
    let mut round = worker.round();
    let mut bell = round.to(node);
    if role == Role::AtomicThenRead {
        bell.faa(mine, 1);
    } else {
        bell.write(mine, &[i]);
    }
    if role != Role::WriteThenAtomic {
        let seen = bell.read(other, 8);
        return Ok(round.ring().await?[seen][0]);
    }
    let never = MaskedCas { expected: !0, desired: 0, compare_mask: !0, swap_mask: !0 };
    let seen = if node.capabilities().masked_cas {
        bell.masked_cas(other, never)
    } else {
        bell.cas(other, !0, 0)
    };
    Ok(round.ring().await?[seen])
}

/// Like [`wait_for`], but as fast as the other side can be.
async fn wait_for_peer(worker: &Worker, node: &Queue, at: u64, least: u64) -> Result<()> {
    loop {
        let mut round = worker.round();
        let word = round.to(node).read(at, 8);
        if round.ring().await?[word][0] >= least {
            return Ok(());
        }
        worker.yield_now().await;
    }
}

async fn call(node: &Queue, count: u64, me: u64) -> Result<()> {
    for i in 0..count {
        let request = vec![me as u8; (i % 500) as usize];
        let reply = node.call(service::ECHO, &request).await?;
        ensure!(reply == request, "call {i}: the echo is not what was sent");
    }
    Ok(())
}
