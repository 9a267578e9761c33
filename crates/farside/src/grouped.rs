//! Records whose columns are in groups: who writes one group is not in the way of who writes another.

use std::marker::PhantomData;

use crate::{Codec, Error, Key, Result, Serde, Snapshot, Table, Transaction};

/// The column groups of a record: a tuple of up to four.
pub trait Groups<C>: Sized {
    /// How many there are.
    const COUNT: u8;

    /// The bytes of each.
    fn encode(&self) -> Result<Vec<Vec<u8>>>;

    /// From the bytes of all.
    fn decode(groups: &[Vec<u8>]) -> Result<Self>;
}

/// One of them, by its number.
pub trait Group<const NUMBER: u8> {
    /// What is in it.
    type Value;
}

macro_rules! groups {
    ($count:literal: $($number:literal $name:ident),*) => {
        impl<C, $($name),*> Groups<C> for ($($name,)*)
        where
            $(C: Codec<$name>),*
        {
            const COUNT: u8 = $count;

            fn encode(&self) -> Result<Vec<Vec<u8>>> {
                #[expect(non_snake_case, reason = "each is named like its type")]
                let ($($name,)*) = self;
                Ok(vec![$(<C as Codec<$name>>::encode($name)?),*])
            }

            fn decode(groups: &[Vec<u8>]) -> Result<Self> {
                Ok(($(<C as Codec<$name>>::decode(&groups[$number])?,)*))
            }
        }
    };
}

macro_rules! group {
    ($($number:literal of ($($name:ident),*) is $value:ident;)*) => {$(
        impl<$($name),*> Group<$number> for ($($name,)*) {
            type Value = $value;
        }
    )*};
}

groups!(2: 0 A, 1 B);
groups!(3: 0 A, 1 B, 2 D);
groups!(4: 0 A, 1 B, 2 D, 3 E);

group! {
    0 of (A, B) is A;
    1 of (A, B) is B;
    0 of (A, B, D) is A;
    1 of (A, B, D) is B;
    2 of (A, B, D) is D;
    0 of (A, B, D, E) is A;
    1 of (A, B, D, E) is B;
    2 of (A, B, D, E) is D;
    3 of (A, B, D, E) is E;
}

/// A table of records whose columns are in groups. A record is read in one round trip, like one without groups; but each group has
/// a version and a lock of its own, so transactions that use different groups of a record do not abort each other.
///
/// ```
/// use farside::{Database, Grouped};
///
/// // What is hardly ever written, and what is written all the time.
/// type Item = ((String, u32), u64);
///
/// let db = Database::open("mem:")?.connect()?;
/// db.block_on(async {
///     let items: Grouped<u64, Item> = Grouped::new(db.create_table("items").await?);
///     db.transact(async |tx| items.insert(tx, &7, &(("bolt".into(), 3), 100)).await).await?;
///     db.transact(async |tx| {
///         let left = items.get_group_for_update::<1>(tx, &7).await?.unwrap_or(0);
///         items.update_group::<1>(tx, &7, &(left - 1)).await
///     })
///     .await?;
///     let item = db.transact(async |tx| items.get(tx, &7).await).await?;
///     assert_eq!(item, Some((("bolt".to_string(), 3), 99)));
///     Ok::<(), farside::Error>(())
/// })?;
/// # Ok::<(), farside::Error>(())
/// ```
#[derive(Debug)]
pub struct Grouped<K: ?Sized, V, C = Serde> {
    table: Table,
    types: PhantomData<fn(&K, C) -> V>,
}

impl<K: ?Sized, V, C> Clone for Grouped<K, V, C> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K: ?Sized, V, C> Copy for Grouped<K, V, C> {}

/// The row of a group: the key, and the group's number behind it.
fn row<K: Key + ?Sized>(key: &K, group: u8) -> Vec<u8> {
    let key = key.to_key();
    [key.as_ref(), &[group]].concat()
}

impl<K: Key + ?Sized, V: Groups<C>, C> Grouped<K, V, C> {
    /// A table with these types. Whoever opens it says the same.
    pub fn new(table: Table) -> Self {
        Grouped { table, types: PhantomData }
    }

    /// The table of bytes.
    pub fn table(&self) -> &Table {
        &self.table
    }

    fn rows(key: &K) -> Vec<Vec<u8>> {
        (0..V::COUNT).map(|group| row(key, group)).collect()
    }

    fn decode(found: Vec<Option<Vec<u8>>>) -> Result<Option<V>> {
        if found.iter().all(Option::is_none) {
            return Ok(None);
        }
        let groups: Option<Vec<Vec<u8>>> = found.into_iter().collect();
        let groups = groups.ok_or_else(|| Error::Damaged("a record lacks a group".into()))?;
        V::decode(&groups).map(Some)
    }

    /// All groups of a record, read together.
    pub async fn get(&self, tx: &mut Transaction, key: &K) -> Result<Option<V>> {
        let rows = Self::rows(key);
        let keys: Vec<&[u8]> = rows.iter().map(Vec::as_slice).collect();
        Self::decode(tx.get_many(&self.table, &keys).await?)
    }

    /// The same in a snapshot.
    pub async fn get_at(&self, moment: &mut Snapshot, key: &K) -> Result<Option<V>> {
        let rows = Self::rows(key);
        let keys: Vec<&[u8]> = rows.iter().map(Vec::as_slice).collect();
        Self::decode(moment.get_many(&self.table, &keys).await?)
    }

    /// Writes all groups of a record, whether it is there or not.
    pub async fn put(&self, tx: &mut Transaction, key: &K, record: &V) -> Result<()> {
        let (rows, groups) = (Self::rows(key), record.encode()?);
        let all = rows.iter().zip(&groups).map(|(row, group)| (row.as_slice(), group.as_slice()));
        tx.put_many(&self.table, &all.collect::<Vec<_>>()).await
    }

    /// Writes a record that is not there.
    pub async fn insert(&self, tx: &mut Transaction, key: &K, record: &V) -> Result<()> {
        let groups = record.encode()?;
        tx.insert(&self.table, &row(key, 0), &groups[0]).await?;
        self.put(tx, key, record).await
    }

    /// Deletes a record; whether it was there.
    pub async fn delete(&self, tx: &mut Transaction, key: &K) -> Result<bool> {
        let mut was_there = false;
        for row in Self::rows(key) {
            was_there |= tx.delete(&self.table, &row).await?;
        }
        Ok(was_there)
    }

    /// One group of a record.
    pub async fn get_group<const GROUP: u8>(
        &self,
        tx: &mut Transaction,
        key: &K,
    ) -> Result<Option<V::Value>>
    where
        V: Group<GROUP>,
        C: Codec<V::Value>,
    {
        let found = tx.get(&self.table, &row(key, GROUP)).await?;
        found.map(|bytes| C::decode(&bytes)).transpose()
    }

    /// One group of a record that will be written.
    pub async fn get_group_for_update<const GROUP: u8>(
        &self,
        tx: &mut Transaction,
        key: &K,
    ) -> Result<Option<V::Value>>
    where
        V: Group<GROUP>,
        C: Codec<V::Value>,
    {
        let found = tx.get_for_update(&self.table, &row(key, GROUP)).await?;
        found.map(|bytes| C::decode(&bytes)).transpose()
    }

    /// Writes one group of a record that is there.
    pub async fn update_group<const GROUP: u8>(
        &self,
        tx: &mut Transaction,
        key: &K,
        value: &V::Value,
    ) -> Result<()>
    where
        V: Group<GROUP>,
        C: Codec<V::Value>,
    {
        tx.update(&self.table, &row(key, GROUP), &C::encode(value)?).await
    }
}
