//! A database in a file goes on after a boot of its host, whose clock has begun again.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;

use farside::{Blocking, Database};

/// Words of the file's header (docs/layouts.md): the boot, and how far the time is ahead of the host's clock.
const BOOT: u64 = 8;
const AHEAD: u64 = 9;

fn set(path: &Path, word: u64, value: u64) {
    let file = OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(&value.to_le_bytes(), word * 8).unwrap();
}

fn open(path: &Path) -> Blocking {
    let url = format!("file:{}?memory=32MiB&durability=flush&lease=100ms", path.display());
    Database::open(&url).unwrap().blocking().unwrap()
}

#[test]
fn time_goes_on_where_it_was() {
    // On a disk: what is on tmpfs does not survive a boot.
    let name = format!("farside-reboot-{}", std::process::id());
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    drop(open(&path));
    // As if it had been up for two years.
    set(&path, AHEAD, 1 << 56);
    let db = open(&path);
    let table = db.create_table("t").unwrap();
    db.put(&table, b"key", b"old").unwrap();
    let before: u64 = db.snapshot().unwrap().share().into();
    assert!(before >= 1 << 56);
    drop(db);
    // Another boot.
    set(&path, BOOT, 12345);
    let db = open(&path);
    let table = db.table("t").unwrap();
    assert_eq!(db.get(&table, b"key").unwrap().as_deref(), Some(&b"old"[..]));
    db.put(&table, b"key", b"new").unwrap();
    assert_eq!(db.get(&table, b"key").unwrap().as_deref(), Some(&b"new"[..]));
    assert!(u64::from(db.snapshot().unwrap().share()) > before);
    drop(db);
    std::fs::remove_file(&path).unwrap();
}
