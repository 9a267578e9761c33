//! Backups: what comes back is what was there, and whatever is wrong with one is found.

use farside::{Blocking, Database, Error, TableOptions, check_backup};

fn fresh() -> Blocking {
    Database::open("mem:?memory=256MiB").unwrap().blocking().unwrap()
}

/// Tables of several kinds, with rows that are short, long and empty.
fn filled(rows: u64) -> Blocking {
    let db = fresh();
    db.create_table("nothing").unwrap();
    let short = db.create_table("short").unwrap();
    let long = db.create_table_with("long", TableOptions { value_bytes: 300 }).unwrap();
    for row in 0..rows {
        db.put(&short, &row.to_be_bytes(), &row.to_le_bytes()[..(row % 9) as usize]).unwrap();
    }
    for row in 0..rows / 8 {
        let value = vec![row as u8; (row * row * 37 % 90_000) as usize];
        db.put(&long, format!("row {row}").as_bytes(), &value).unwrap();
    }
    db
}

fn back_up(db: &Blocking) -> Vec<u8> {
    let mut stream = Vec::new();
    db.connection().block_on(db.connection().back_up(&mut stream, |_| true)).unwrap();
    stream
}

fn restore(db: &Blocking, stream: &[u8]) -> farside::Result<farside::Backup> {
    db.connection().block_on(db.connection().restore(stream, |_| true))
}

type Rows = Vec<(Vec<u8>, Vec<u8>)>;

fn contents(db: &Blocking) -> Vec<(String, Rows)> {
    let read = |name: String| {
        let (table, mut rows) = (db.table(&name).unwrap(), Rows::new());
        let mut snapshot = db.snapshot().unwrap();
        snapshot.scan(&table, |key, value| rows.push((key.into(), value.into()))).unwrap();
        rows.sort();
        (name, rows)
    };
    db.tables().unwrap().into_iter().map(read).collect()
}

#[test]
fn what_comes_back_is_what_was_there() {
    let db = filled(4000);
    let stream = back_up(&db);
    let again = fresh();
    let restored = restore(&again, &stream).unwrap();
    assert_eq!((restored.tables, restored.rows), (3, 4500));
    assert_eq!(restored.bytes, stream.len() as u64);
    assert_eq!(contents(&again), contents(&db));
    let options = again.table("long").unwrap().options();
    assert_eq!(options, TableOptions { value_bytes: 300 });
}

#[test]
fn an_empty_database_has_a_backup_too() {
    let stream = back_up(&fresh());
    assert_eq!(restore(&fresh(), &stream).unwrap().tables, 0);
}

/// Every bit of a small one, and every place where it may end.
#[test]
fn whatever_is_damaged_is_found() {
    let stream = back_up(&filled(24));
    assert!(check_backup(&stream[..], |_| true).is_ok());
    let found = |bytes: &[u8]| match check_backup(bytes, |_| true) {
        Err(Error::Damaged(why)) => assert!(why.starts_with("the backup, byte "), "{why}"),
        other => panic!("a damaged backup: {other:?}"),
    };
    for bit in 0..stream.len() * 8 {
        let mut damaged = stream.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        found(&damaged);
    }
    (0..stream.len()).for_each(|end| found(&stream[..end]));
    found(&[&stream[..], &[0]].concat());
    // Frames of another backup do not fit in between.
    let other = back_up(&filled(24));
    let middle = stream.len() / 2;
    found(&[&stream[..middle], &other[middle..]].concat());
}

/// Some bits of a large one.
#[test]
fn whatever_is_damaged_in_a_large_one_is_found() {
    let mut stream = back_up(&filled(6000));
    assert!(stream.len() > 10_000_000, "{}", stream.len());
    let mut place = 1u64;
    for _ in 0..150 {
        place = place.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let bit = ((place >> 16) % (stream.len() as u64 * 8)) as usize;
        stream[bit / 8] ^= 1 << (bit % 8);
        let checked = check_backup(&stream[..], |_| true);
        assert!(matches!(checked, Err(Error::Damaged(_))), "bit {bit}: {checked:?}");
        stream[bit / 8] ^= 1 << (bit % 8);
    }
    assert!(check_backup(&stream[..], |_| true).is_ok());
}

#[test]
fn what_is_wrong_changes_nothing() {
    let stream = back_up(&filled(3000));
    let db = fresh();
    let mut damaged = stream.clone();
    let last = damaged.len() - 100;
    damaged[last] ^= 1;
    assert!(matches!(restore(&db, &damaged), Err(Error::Damaged(_))));
    assert_eq!(db.tables().unwrap(), Vec::<String>::new());
    // A table that is there already stays as it is.
    let mine = db.create_table("short").unwrap();
    db.put(&mine, b"mine", b"yes").unwrap();
    assert_eq!(restore(&db, &stream).unwrap_err(), Error::TableExists("short".into()));
    assert_eq!(contents(&db), [("short".into(), vec![(b"mine".to_vec(), b"yes".to_vec())])]);
    // And who stops it leaves nothing.
    let other = fresh();
    let connection = other.connection();
    let stopped = connection.block_on(connection.restore(&stream[..], |known| known.rows < 100));
    assert!(stopped.unwrap_err().to_string().contains("stopped"));
    assert_eq!(other.tables().unwrap(), Vec::<String>::new());
}
