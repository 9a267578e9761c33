//! Every config store does the same, and says what is wrong.

mod common;

use std::path::PathBuf;
use std::time::Duration;

use common::Etcd;
use farside_fabric::Worker;
use farside_pool::store::{EtcdStore, FileStore, MemoryStore};
use farside_pool::{ConfigStore, StoreError, Stored};

struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("farside-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).unwrap();
        Directory(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn etcd_store(etcd: &Etcd, name: &str) -> EtcdStore {
    EtcdStore::new(vec![etcd.address()], name, Duration::from_secs(2))
}

async fn behaves(store: &dyn ConfigStore) {
    assert_eq!(store.read(0).await, Ok(Stored::default()));
    assert_eq!(store.swap(7, b"early").await, Ok(false));
    assert_eq!(store.swap(0, b"first").await, Ok(true));
    let first = store.read(0).await.unwrap();
    assert_eq!(first.config.as_deref(), Some(&b"first"[..]));
    assert_ne!(first.revision, 0);
    let unchanged = store.read(first.revision).await.unwrap();
    assert_eq!(unchanged, Stored { config: None, ..first.clone() });
    assert_eq!(store.swap(0, b"late").await, Ok(false));
    store.petition("a", b"please").await.unwrap();
    store.petition("b", b"more").await.unwrap();
    store.petition("a", b"please!").await.unwrap();
    assert_eq!(store.swap(first.revision, b"second").await, Ok(true), "petitions change nothing");
    assert_eq!(store.swap(first.revision, b"third").await, Ok(false));
    store.dismiss("b").await.unwrap();
    store.dismiss("b").await.unwrap();
    let second = store.read(0).await.unwrap();
    assert_eq!(second.config.as_deref(), Some(&b"second"[..]));
    assert_eq!(second.petitions, [("a".to_owned(), b"please!".to_vec())]);
}

#[test]
fn all_stores_behave_alike() {
    let worker = Worker::new(1);
    worker.block_on(behaves(&MemoryStore::default()));
    let directory = Directory::new("store");
    worker.block_on(behaves(&FileStore::new(&directory.0.join("pool"))));
    if let Some(etcd) = Etcd::start("alike", None) {
        worker.block_on(behaves(&etcd_store(&etcd, "one")));
        worker.block_on(behaves(&etcd_store(&etcd, "two")));
    }
}

/// Of many who swap at once, each revision is replaced once.
fn nobody_is_lost(open: impl Fn() -> Box<dyn ConfigStore> + Sync) {
    let wins: u64 = std::thread::scope(|scope| {
        let swap = || {
            let (worker, store) = (Worker::new(1), open());
            let mut wins = 0;
            worker.block_on(async {
                for _ in 0..50 {
                    let stored = store.read(0).await.unwrap();
                    let count: u64 = stored
                        .config
                        .map_or(0, |text| String::from_utf8(text).unwrap().parse().unwrap());
                    let next = (count + 1).to_string();
                    wins += u64::from(store.swap(stored.revision, next.as_bytes()).await.unwrap());
                }
            });
            wins
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(swap)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    let worker = Worker::new(1);
    let last = worker.block_on(open().read(0)).unwrap().config.unwrap();
    assert_eq!(String::from_utf8(last).unwrap(), wins.to_string());
    assert!(wins >= 50);
}

#[test]
fn swaps_of_many_are_made_one_by_one() {
    let directory = Directory::new("swaps");
    nobody_is_lost(|| Box::new(FileStore::new(&directory.0.join("pool"))));
    if let Some(etcd) = Etcd::start("swaps", None) {
        nobody_is_lost(|| Box::new(etcd_store(&etcd, "swaps")));
    }
}

#[test]
fn foreign_and_damaged_files_are_refused_and_stay_as_they_are() {
    let directory = Directory::new("foreign");
    let path = directory.0.join("pool");
    let worker = Worker::new(1);
    let refused = |what: &[u8], why: &str| {
        std::fs::write(&path, what).unwrap();
        let store = FileStore::new(&path);
        for result in [
            worker.block_on(store.read(0)).map(drop),
            worker.block_on(store.swap(0, b"x")).map(drop),
            worker.block_on(store.petition("x", b"x")),
        ] {
            let Err(StoreError::Foreign(said)) = result else { panic!("{result:?}") };
            assert!(said.contains(why) && said.contains("give another path"), "{said}");
        }
        assert_eq!(std::fs::read(&path).unwrap(), what, "changed");
    };
    refused(b"a letter to a friend", "is not the configuration of a pool");
    refused(b"", "is not the configuration of a pool");
    std::fs::remove_file(&path).unwrap();
    let store = FileStore::new(&path);
    assert_eq!(worker.block_on(store.swap(0, b"a configuration")), Ok(true));
    let good = std::fs::read(&path).unwrap();
    let text = String::from_utf8(good.clone()).unwrap();
    refused(text.replace("a configuration", "b configuration").as_bytes(), "is damaged");
    refused(&good[..good.len() / 2], "is not the configuration of a pool");
    refused(text.replace("\"farside_pool\":1", "\"farside_pool\":9").as_bytes(), "has format 9");
}

#[test]
fn a_wrong_address_of_etcd_is_told() {
    let address = format!("127.0.0.1:{}", common::free_port());
    let store = EtcdStore::new(vec![address.clone()], "pool", Duration::from_secs(1));
    let result = Worker::new(1).block_on(store.read(0));
    let Err(StoreError::Unreachable(said)) = result else { panic!("{result:?}") };
    assert!(said.contains(&address) && said.contains("is etcd running there?"), "{said}");
}

#[test]
fn another_server_is_not_taken_for_etcd() {
    use std::io::{Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming().take(2) {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let body = "hello";
            let _ = write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n{body}");
        }
    });
    let store = EtcdStore::new(vec![address], "pool", Duration::from_secs(1));
    let result = Worker::new(1).block_on(store.read(0));
    let Err(StoreError::Foreign(said)) = result else { panic!("{result:?}") };
    assert!(said.contains("is this etcd?"), "{said}");
}

/// It dies, and comes back: errors meanwhile, and what was there is there.
#[test]
fn an_etcd_that_comes_back_has_what_it_had() {
    let Some(mut etcd) = Etcd::start("back", None) else { return };
    let (worker, store) = (Worker::new(1), etcd_store(&etcd, "back"));
    assert_eq!(worker.block_on(store.swap(0, b"here")), Ok(true));
    etcd.kill();
    assert!(matches!(worker.block_on(store.read(0)), Err(StoreError::Unreachable(_))));
    etcd.run();
    let stored = worker.block_on(store.read(0)).unwrap();
    assert_eq!(stored.config.as_deref(), Some(&b"here"[..]));
    assert_eq!(worker.block_on(store.swap(stored.revision, b"on")), Ok(true));
}
