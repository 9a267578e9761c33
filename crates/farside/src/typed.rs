//! Tables of other things than bytes.

use std::marker::PhantomData;

use serde::Serialize;
use serde::de::DeserializeOwned;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::{Error, Result, Snapshot, Table, Transaction};

/// How values become bytes.
///
/// ```
/// use farside::{Codec, Plain, Serde};
///
/// assert_eq!(<Plain as Codec<u32>>::encode(&7)?, [7, 0, 0, 0]);
/// let bytes = <Serde as Codec<(u8, String)>>::encode(&(1, "x".into()))?;
/// assert_eq!(<Serde as Codec<(u8, String)>>::decode(&bytes)?, (1, "x".into()));
/// # Ok::<(), farside::Error>(())
/// ```
pub trait Codec<V> {
    /// To bytes.
    fn encode(value: &V) -> Result<Vec<u8>>;

    /// From bytes.
    fn decode(bytes: &[u8]) -> Result<V>;
}

/// Values that are plain memory, as `zerocopy` knows them: they are stored as they are.
#[derive(Clone, Copy, Debug)]
pub enum Plain {}

impl<V: FromBytes + IntoBytes + Immutable> Codec<V> for Plain {
    fn encode(value: &V) -> Result<Vec<u8>> {
        Ok(value.as_bytes().to_vec())
    }

    fn decode(bytes: &[u8]) -> Result<V> {
        let (there, expected) = (bytes.len(), size_of::<V>());
        V::read_from_bytes(bytes).map_err(|_| {
            Error::Damaged(format!("a value of {there} bytes, where {expected} were expected"))
        })
    }
}

/// Values that `serde` knows: they are stored as `postcard` writes them.
#[derive(Clone, Copy, Debug)]
pub enum Serde {}

impl<V: Serialize + DeserializeOwned> Codec<V> for Serde {
    fn encode(value: &V) -> Result<Vec<u8>> {
        postcard::to_allocvec(value).map_err(|error| Error::Invalid(format!("a value: {error}")))
    }

    fn decode(bytes: &[u8]) -> Result<V> {
        postcard::from_bytes(bytes).map_err(|error| Error::Damaged(format!("a value: {error}")))
    }
}

/// Keys of a table: numbers, text, or bytes.
///
/// ```
/// use farside::Key;
///
/// assert_eq!(7u16.to_key().as_ref(), [0, 7]);
/// assert_eq!("alice".to_key().as_ref(), b"alice");
/// ```
pub trait Key {
    /// Its bytes.
    fn to_key(&self) -> impl AsRef<[u8]>;
}

impl Key for str {
    fn to_key(&self) -> impl AsRef<[u8]> {
        self.as_bytes()
    }
}

impl Key for String {
    fn to_key(&self) -> impl AsRef<[u8]> {
        self.as_bytes()
    }
}

impl Key for [u8] {
    fn to_key(&self) -> impl AsRef<[u8]> {
        self
    }
}

macro_rules! numbers {
    ($($number:ty)*) => {$(
        impl Key for $number {
            fn to_key(&self) -> impl AsRef<[u8]> {
                self.to_be_bytes()
            }
        }
    )*};
}

numbers!(u8 u16 u32 u64 u128);

/// A table whose keys and values are not bytes.
///
/// ```
/// use farside::{Database, Typed};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize, PartialEq, Debug)]
/// struct Person { name: String, age: u8 }
///
/// let db = Database::open("mem:")?.connect()?;
/// db.block_on(async {
///     let people: Typed<u64, Person> = Typed::new(db.create_table("people").await?);
///     let ada = Person { name: "Ada".into(), age: 36 };
///     db.transact(async |tx| people.put(tx, &1, &ada).await).await?;
///     let found = db.transact(async |tx| people.get(tx, &1).await).await?;
///     assert_eq!(found, Some(ada));
///     Ok::<(), farside::Error>(())
/// })?;
/// # Ok::<(), farside::Error>(())
/// ```
#[derive(Debug)]
pub struct Typed<K: ?Sized, V, C = Serde> {
    table: Table,
    types: PhantomData<fn(&K, C) -> V>,
}

impl<K: ?Sized, V, C> Clone for Typed<K, V, C> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K: ?Sized, V, C> Copy for Typed<K, V, C> {}

impl<K: Key + ?Sized, V, C: Codec<V>> Typed<K, V, C> {
    /// A table with these types. Whoever opens it says the same.
    ///
    /// ```
    /// use farside::{Plain, Typed};
    /// # let db = farside::Database::open("mem:")?.blocking()?;
    /// let counts: Typed<str, u64, Plain> = Typed::new(db.create_table("counts")?);
    /// # Ok::<(), farside::Error>(())
    /// ```
    pub fn new(table: Table) -> Self {
        Typed { table, types: PhantomData }
    }

    /// The table of bytes.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// See [`Transaction::get`].
    pub async fn get(&self, tx: &mut Transaction, key: &K) -> Result<Option<V>> {
        let found = tx.get(&self.table, key.to_key().as_ref()).await?;
        found.map(|bytes| C::decode(&bytes)).transpose()
    }

    /// See [`Transaction::get_for_update`].
    pub async fn get_for_update(&self, tx: &mut Transaction, key: &K) -> Result<Option<V>> {
        let found = tx.get_for_update(&self.table, key.to_key().as_ref()).await?;
        found.map(|bytes| C::decode(&bytes)).transpose()
    }

    /// See [`Transaction::put`].
    pub async fn put(&self, tx: &mut Transaction, key: &K, value: &V) -> Result<()> {
        tx.put(&self.table, key.to_key().as_ref(), &C::encode(value)?).await
    }

    /// See [`Transaction::insert`].
    pub async fn insert(&self, tx: &mut Transaction, key: &K, value: &V) -> Result<()> {
        tx.insert(&self.table, key.to_key().as_ref(), &C::encode(value)?).await
    }

    /// See [`Transaction::update`].
    pub async fn update(&self, tx: &mut Transaction, key: &K, value: &V) -> Result<()> {
        tx.update(&self.table, key.to_key().as_ref(), &C::encode(value)?).await
    }

    /// See [`Transaction::delete`].
    pub async fn delete(&self, tx: &mut Transaction, key: &K) -> Result<bool> {
        tx.delete(&self.table, key.to_key().as_ref()).await
    }

    /// See [`Snapshot::get`].
    pub async fn get_at(&self, moment: &mut Snapshot, key: &K) -> Result<Option<V>> {
        let found = moment.get(&self.table, key.to_key().as_ref()).await?;
        found.map(|bytes| C::decode(&bytes)).transpose()
    }
}
