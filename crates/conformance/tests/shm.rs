//! What only `shm` has: processes that stop, die at bad moments or come late, and segments in files.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use farside_conformance::bed::service;
use farside_conformance::beds::{ShmBed, start_process};
use farside_conformance::{Actor, Bed, Ended, Job, Role, cases, run};
use farside_fabric::shm::{Client, Segment};
use farside_fabric::{ClientId, FabricError, NodeId, Persistence, Queue, Worker};

const AT: u64 = 8192;

fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_farside-conformance"))
}

fn job(role: Role, count: u64) -> Job {
    Job { role, node: 0, at: AT, count, me: 1 }
}

/// A file name of its own, removed at the end.
struct TempPath(PathBuf);

impl TempPath {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("farside-{}-{name}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        TempPath(path)
    }
}

impl Drop for TempPath {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn give_start(worker: &Worker, queue: &Queue) {
    worker.block_on(async {
        let mut round = worker.round();
        round.to(queue).write(farside_conformance::actor::START, &[1]);
        round.ring().await.unwrap();
    });
}

fn word(worker: &Worker, queue: &Queue, at: u64) -> u64 {
    worker.block_on(async {
        let mut round = worker.round();
        let found = round.to(queue).read(at, 8);
        round.ring().await.unwrap()[found][0]
    })
}

fn wait_for(worker: &Worker, queue: &Queue, at: u64, least: u64) {
    let start = Instant::now();
    while word(worker, queue, at) < least {
        assert!(start.elapsed() < Duration::from_secs(20), "nobody got to {least}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn the_suite_holds_on_segments_in_files() {
    for case in [
        "a_read_never_overtakes_a_write",
        "a_flush_completes_behind_writes",
        "a_killed_client_disturbs_nobody",
    ] {
        let paths = [TempPath::new(&format!("{case}-0")), TempPath::new(&format!("{case}-1"))];
        let segments = paths
            .iter()
            .zip(0..)
            .map(|(path, node)| Segment::create(&path.0, NodeId(node), 16 << 20).unwrap())
            .collect();
        let bed = ShmBed::on(segments, program()).unwrap();
        run(cases::named(case).unwrap(), &bed).unwrap();
    }
}

#[test]
fn what_was_flushed_is_in_the_file() {
    let path = TempPath::new("flushed");
    let worker = Worker::new(1);
    {
        let segment = Segment::create(&path.0, NodeId(7), 1 << 20).unwrap();
        let client = Client::attach([segment], ClientId(1)).unwrap();
        let queue = client.connect(&worker, NodeId(7)).unwrap();
        if queue.capabilities().persistence == Persistence::Volatile {
            println!("skipped: {} is on tmpfs, which has nothing to flush", path.0.display());
            return;
        }
        worker.block_on(async {
            let mut round = worker.round();
            round.to(&queue).write(AT, &[0x1122_3344_5566_7788]);
            round.to(&queue).flush();
            round.ring().await.unwrap();
        });
    }
    let segment = Segment::open(&path.0).unwrap();
    assert_eq!((segment.node(), segment.bytes()), (NodeId(7), 1 << 20));
    // The id is free again: the first client has detached.
    let client = Client::attach([segment], ClientId(1)).unwrap();
    let queue = client.connect(&worker, NodeId(7)).unwrap();
    assert_eq!(word(&worker, &queue, AT), 0x1122_3344_5566_7788);
}

#[track_caller]
fn refuses_to_open(path: &Path, expected: &str) {
    let before = std::fs::read(path).ok();
    let error = Segment::open(path).unwrap_err().to_string();
    assert!(error.contains(expected), "{error}");
    assert_eq!(std::fs::read(path).ok(), before, "the file was changed");
}

#[test]
fn files_that_are_no_segments_are_refused() {
    let path = TempPath::new("foreign");
    refuses_to_open(&path.0, "No such file");
    std::fs::write(&path.0, b"").unwrap();
    refuses_to_open(&path.0, "not a Farside segment");
    std::fs::write(&path.0, vec![0; 3 << 20]).unwrap();
    refuses_to_open(&path.0, "not a Farside segment");
    std::fs::write(&path.0, vec![0xff; 3 << 20]).unwrap();
    refuses_to_open(&path.0, "not a Farside segment");
    let error = Segment::create(&path.0, NodeId(0), 4096).unwrap_err().to_string();
    assert!(error.contains("exists already"), "{error}");
}

#[test]
fn damaged_segments_are_refused() {
    let path = TempPath::new("damaged");
    drop(Segment::create(&path.0, NodeId(0), 1 << 20).unwrap());
    let file = std::fs::OpenOptions::new().write(true).open(&path.0).unwrap();
    file.set_len((2 << 20) + 4096).unwrap();
    refuses_to_open(&path.0, "cut short");
    file.set_len((2 << 20) + (1 << 20)).unwrap();
    file.write_at(&[9], 8).unwrap();
    refuses_to_open(&path.0, "version 9");
    file.write_at(&[1], 8).unwrap();
    file.write_at(&[0xff; 8], 24).unwrap();
    refuses_to_open(&path.0, "256 TiB");
    let sizes = [0, 7, 1 << 60];
    for size in sizes {
        let other = TempPath::new("size");
        assert!(Segment::create(&other.0, NodeId(0), size).is_err());
        assert!(!other.0.exists(), "a failed create leaves nothing behind");
    }
}

#[test]
fn a_disk_that_is_too_small_is_an_error_and_not_a_crash() {
    let path = TempPath::new("huge");
    let error = Segment::create(&path.0, NodeId(0), 1 << 47).unwrap_err().to_string();
    assert!(error.contains("reserving"), "{error}");
    assert!(!path.0.exists());
}

#[test]
fn a_stopped_process_is_killed_by_the_fence() {
    let bed = ShmBed::new(program()).unwrap();
    let queue = bed.connect(NodeId(0)).unwrap();
    let victim = bed.spawn(job(Role::Add, u64::MAX), None).unwrap();
    give_start(bed.worker(), &queue);
    wait_for(bed.worker(), &queue, AT, 100);
    let pid = rustix::process::Pid::from_raw(victim.pid().unwrap() as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    bed.worker().block_on(queue.fence(victim.client())).unwrap();
    let ended = bed.worker().block_on(victim.join(bed.worker()));
    assert_eq!(ended, Ended::Killed);
}

#[test]
fn a_process_that_attaches_after_its_fence_is_refused() {
    let bed = ShmBed::new(program()).unwrap();
    let queue = bed.connect(NodeId(0)).unwrap();
    let late = ClientId(77);
    bed.worker().block_on(queue.fence(late)).unwrap();
    let ended =
        bed.worker().block_on(bed.spawn(job(Role::Add, 1), Some(late)).unwrap().join(bed.worker()));
    assert!(matches!(&ended, Ended::Failed(why) if why.contains("was fenced")), "{ended:?}");
    let own = bed.worker().block_on(queue.fence(bed.client())).unwrap_err();
    assert!(own.to_string().contains("cannot fence itself"), "{own}");
}

#[test]
fn two_processes_cannot_share_an_id() {
    let bed = ShmBed::new(program()).unwrap();
    let ended = bed
        .worker()
        .block_on(bed.spawn(job(Role::Add, 1), Some(bed.client())).unwrap().join(bed.worker()));
    assert!(matches!(&ended, Ended::Failed(why) if why.contains("never used twice")), "{ended:?}");
}

/// More processes die than the table of processes has places: their places are found and reused.
#[test]
fn places_of_dead_processes_are_reused() {
    let bed = ShmBed::new(program()).unwrap();
    let queue = bed.connect(NodeId(0)).unwrap();
    for generation in 0..35u64 {
        let mut actors: Vec<Box<dyn Actor>> =
            (0..8).map(|_| bed.spawn(job(Role::Add, u64::MAX), None).unwrap()).collect();
        wait_for(bed.worker(), &queue, farside_conformance::actor::READY, (generation + 1) * 8);
        actors.iter_mut().for_each(|actor| actor.kill());
        for actor in actors {
            assert_eq!(bed.worker().block_on(actor.join(bed.worker())), Ended::Killed);
        }
    }
}

/// Callers that die in the middle of a call leave mailbox slots behind, which the server frees.
#[test]
fn calls_go_on_after_callers_died() {
    let bed = ShmBed::new(program()).unwrap();
    let queue = bed.connect(NodeId(0)).unwrap();
    give_start(bed.worker(), &queue);
    for _ in 0..5 {
        let mut actors: Vec<_> =
            (0..8).map(|_| bed.spawn(job(Role::Call, u64::MAX), None).unwrap()).collect();
        std::thread::sleep(Duration::from_millis(30));
        actors.iter_mut().for_each(|actor| actor.kill());
    }
    for _ in 0..100 {
        let reply = bed.worker().block_on(queue.call(service::ECHO, b"anyone?")).unwrap();
        assert_eq!(reply, b"anyone?");
    }
}

#[test]
fn a_dead_server_is_noticed_and_can_be_replaced() {
    let segments: Vec<_> =
        (0..2).map(|node| Segment::in_memory(NodeId(node), 1 << 20).unwrap()).collect();
    let paths: Vec<_> = segments.iter().map(|s| s.path().display().to_string()).collect();
    let connect = format!("shm-serve:{}", paths.join(","));
    let worker = Worker::new(1);
    let client = Client::attach(segments, ClientId(1)).unwrap();
    let queue = client.connect(&worker, NodeId(0)).unwrap();
    let call = || worker.block_on(queue.call(service::ECHO, b"hello"));
    let no_service = |result: &Result<Vec<u8>, FabricError>| {
        matches!(result, Err(FabricError::NoService { .. }))
    };
    assert!(no_service(&call()), "nobody serves yet");
    for id in [2, 3] {
        let mut server =
            start_process(program(), &connect, ClientId(id), job(Role::Add, 0)).unwrap();
        let start = Instant::now();
        while no_service(&call()) {
            assert!(start.elapsed() < Duration::from_secs(10), "no server appeared");
        }
        assert_eq!(call().unwrap(), b"hello");
        server.kill();
        assert_eq!(worker.block_on(server.join(&worker)), Ended::Killed);
        let start = Instant::now();
        assert!(no_service(&call()), "its server is dead");
        assert!(start.elapsed() < Duration::from_secs(1));
    }
}
