//! The table of a region: one word per chunk, which names the owner of its slab.

use std::collections::BTreeMap;

use farside_fabric::{Queue, Result, Worker, probe};

use super::SizeClass;
use super::slab::CHUNK_BYTES;

/// Where the table is, and how much of a region it takes: whole chunks.
pub const REGION_HEAD_BYTES: u64 = CHUNK_BYTES;

/// A region as a heap reaches it: the queues to its replicas with where it begins there, the primary
/// first.
#[derive(Clone, Debug)]
pub struct Place {
    /// Its number.
    pub region: crate::RegionId,
    /// Its size.
    pub bytes: u64,
    /// Its replicas.
    pub replicas: Vec<(Queue, u64)>,
    /// Copies in the making. They are written after the others: whoever makes them reads the primary again when it has
    /// written, and so sees what came meanwhile.
    pub joining: Vec<(Queue, u64)>,
}

/// How many words are read at once.
pub(super) const READS_PER_ROUND: usize = 1024;

/// The owner of slabs whose owners have died: any heap may adopt them.
pub(crate) const NOBODY: u64 = (1 << 48) - 1;

/// The owner of the chunk behind the table of region 0, which is no slab.
const SYSTEM: u64 = (1 << 48) - 2;

/// Where that chunk is.
pub const SYSTEM_OFFSET: u64 = REGION_HEAD_BYTES;

/// How long it is.
pub const SYSTEM_BYTES: u64 = CHUNK_BYTES;

/// What a chunk's word says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    /// Whose it is: 48 bits, never 0.
    pub(super) owner: u64,
    pub(super) class: SizeClass,
    /// It is not the first chunk of its slab.
    pub(super) inner: bool,
}

impl Entry {
    pub(super) fn to_word(self) -> u64 {
        self.owner << 16 | u64::from(self.inner) << 8 | u64::from(self.class.number())
    }

    pub(super) fn from_word(word: u64) -> Option<Self> {
        let (owner, class) = (word >> 16, SizeClass::from_number(word as u8)?);
        (owner != 0).then_some(Entry { owner, class, inner: word >> 8 & 1 == 1 })
    }

    /// It is the chunk that is no slab.
    pub(super) fn is_system(self) -> bool {
        self.owner == SYSTEM
    }

    /// The words of the whole slab whose head this is.
    pub(super) fn words(self) -> Vec<u64> {
        (0..self.class.chunks()).map(|n| Entry { inner: n > 0, ..self }.to_word()).collect()
    }

    /// Whether this is the head of a slab, in a table that begins with it. On a copy that became the
    /// primary, a head may be left of a claim that did not come to its end.
    pub(super) fn is_whole(self, table: &[u64]) -> bool {
        let chunks = self.class.chunks() as usize;
        let belongs = |word: &u64| {
            Entry::from_word(*word).is_some_and(|inner| inner.inner && inner.class == self.class)
        };
        !self.inner && table.get(1..chunks).is_some_and(|words| words.iter().all(belongs))
    }
}

impl Place {
    /// Keeps the chunk behind the table from all heaps, for what is not an object. Everybody does this before
    /// it uses a region that has such a chunk; `false` if that is in use otherwise.
    pub async fn reserve_system(&self, worker: &Worker) -> Result<bool> {
        let class = SizeClass::of(8).expect("the smallest");
        let word = Entry { owner: SYSTEM, class, inner: false }.to_word();
        let mut round = worker.round();
        let mut found = Vec::with_capacity(self.replicas.len());
        for (replica, base) in self.replicas.iter().chain(&self.joining) {
            found.push(round.to(replica).cas(base + SYSTEM_OFFSET / CHUNK_BYTES * 8, 0, word));
        }
        let done = round.ring().await?;
        Ok(found.into_iter().all(|found| done[found] == 0 || done[found] == word))
    }

    /// How many chunks there are; the first is the table's.
    pub(super) fn chunks(&self) -> u64 {
        (self.bytes / CHUNK_BYTES).min(REGION_HEAD_BYTES / 8)
    }

    /// The whole table.
    pub(super) async fn read_table(&self, worker: &Worker) -> Result<Vec<u64>> {
        self.read_table_of(worker, &self.replicas[0]).await
    }

    async fn read_table_of(
        &self,
        worker: &Worker,
        (copy, base): &(Queue, u64),
    ) -> Result<Vec<u64>> {
        let mut round = worker.round();
        let table = round.to(copy).read(*base, self.chunks() as usize * 8);
        Ok(round.ring().await?[table].to_vec())
    }

    /// Who is named in the table, for audits.
    pub async fn owners(&self, worker: &Worker) -> Result<Vec<u64>> {
        let table = self.read_table(worker).await?;
        Ok(owned(&table).into_iter().map(|(_, entry, _)| entry.owner).collect())
    }

    /// How many chunks are free, and how many slabs there are by the bytes of their objects.
    pub(crate) async fn usage(&self, worker: &Worker) -> Result<(u64, BTreeMap<u64, u64>)> {
        let mut slabs = BTreeMap::new();
        if self.chunks() < 2 {
            return Ok((0, slabs));
        }
        let table = self.read_table(worker).await?;
        let free = table.iter().skip(1).filter(|word| **word == 0).count();
        for entry in table.iter().filter_map(|word| Entry::from_word(*word)) {
            *slabs.entry(entry.class.bytes()).or_default() += u64::from(!entry.inner);
        }
        Ok((free as u64, slabs))
    }

    /// How many bytes are in no slab.
    pub async fn free_bytes(&self, worker: &Worker) -> Result<u64> {
        Ok(self.usage(worker).await?.0 * CHUNK_BYTES)
    }

    /// Single words at these offsets of the region, from the primary.
    pub(super) async fn read_words(&self, worker: &Worker, offsets: &[u64]) -> Result<Vec<u64>> {
        let (primary, base) = &self.replicas[0];
        let mut words = Vec::with_capacity(offsets.len());
        for some in offsets.chunks(READS_PER_ROUND) {
            let mut round = worker.round();
            let mut bell = round.to(primary);
            let tickets: Vec<_> = some.iter().map(|offset| bell.read(base + offset, 8)).collect();
            let done = round.ring().await?;
            words.extend(tickets.into_iter().map(|ticket| done[ticket][0]));
        }
        Ok(words)
    }

    /// Claims a run of free chunks as a slab; `false` if they are not free any more.
    ///
    /// The inner words first: a slab exists from the moment that its head does.
    pub(super) async fn claim(&self, worker: &Worker, chunk: u64, head: Entry) -> Result<bool> {
        let words = head.words();
        for (number, word) in words.iter().enumerate().rev() {
            if self.cas(worker, chunk + number as u64, 0, *word).await? {
                continue;
            }
            for (back, word) in words.iter().enumerate().skip(number + 1) {
                self.cas(worker, chunk + back as u64, *word, 0).await?;
            }
            return Ok(false);
        }
        self.tell_copies(worker, chunk, &words).await?;
        self.flush(worker).await?;
        Ok(true)
    }

    /// What was done here is durable after this, where nodes keep anything. Whose a slab is must be known wherever anything that is
    /// in it is durable.
    async fn flush(&self, worker: &Worker) -> Result<()> {
        let mut round = worker.round();
        let mut any = false;
        let keepers = self.replicas.iter().filter(|(queue, _)| queue.keeps_what_is_flushed());
        for (queue, _) in keepers {
            round.to(queue).flush();
            any = true;
        }
        if any {
            round.ring().await?;
        }
        Ok(())
    }

    /// Changes the owner of a slab; `false` if it is not the expected one any more.
    pub(super) async fn take(
        &self,
        worker: &Worker,
        chunk: u64,
        from: Entry,
        to: Entry,
    ) -> Result<bool> {
        if !self.cas(worker, chunk, from.to_word(), to.to_word()).await? {
            return Ok(false);
        }
        self.tell_copies(worker, chunk, &to.words()).await?;
        self.flush(worker).await?;
        Ok(true)
    }

    /// Gives back a slab. The copies first, while it is still ours: nobody else writes there then.
    pub(super) async fn give_back(&self, worker: &Worker, chunk: u64, head: Entry) -> Result<()> {
        // Nobody looks for anything in it any more.
        self.flush(worker).await?;
        let chunks = head.class.chunks();
        self.tell(worker, &self.replicas[1..], chunk, &vec![0; chunks as usize]).await?;
        let inner: Vec<u64> = (chunk + 1..chunk + chunks).map(|at| at * 8).collect();
        // They may have the name of an earlier owner.
        let words = self.read_words(worker, &inner).await?;
        self.cas(worker, chunk, head.to_word(), 0).await?;
        for (at, word) in (chunk + 1..).zip(&words) {
            self.cas(worker, at, *word, 0).await?;
        }
        if !self.joining.is_empty() {
            // Now it may be somebody else's: only what was ours goes.
            let mut round = worker.round();
            for (copy, base) in &self.joining {
                let all = std::iter::once(head.to_word()).chain(words.iter().copied());
                for (at, word) in (chunk..).zip(all.zip(head.words())) {
                    // They may have been told of us where the primary was not.
                    round.to(copy).cas(base + at * 8, word.0, 0);
                    round.to(copy).cas(base + at * 8, word.1, 0);
                }
            }
            round.ring().await?;
        }
        Ok(())
    }

    /// Replaces a word at some copies that have the old one.
    pub(super) async fn swap(
        &self,
        worker: &Worker,
        copies: &[(Queue, u64)],
        offset: u64,
        (old, new): (u64, u64),
    ) -> Result<()> {
        if copies.is_empty() {
            return Ok(());
        }
        let mut round = worker.round();
        for (copy, base) in copies {
            round.to(copy).cas(base + offset, old, new);
        }
        round.ring().await?;
        Ok(())
    }

    /// Writes words on all replicas.
    pub(super) async fn write(&self, worker: &Worker, offset: u64, words: &[u64]) -> Result<()> {
        for copies in [&self.replicas, &self.joining].into_iter().filter(|it| !it.is_empty()) {
            let mut round = worker.round();
            for (replica, base) in copies {
                round.to(replica).write(base + offset, words);
            }
            round.ring().await?;
        }
        Ok(())
    }

    /// Clears the first words of objects on all replicas.
    pub(super) async fn clear(&self, worker: &Worker, offsets: &[u64]) -> Result<()> {
        for copies in [&self.replicas, &self.joining] {
            for some in offsets.chunks(READS_PER_ROUND).filter(|_| !copies.is_empty()) {
                let mut round = worker.round();
                for (replica, base) in copies {
                    let mut bell = round.to(replica);
                    some.iter().for_each(|offset| bell.write(base + offset, &[0]));
                }
                round.ring().await?;
            }
        }
        Ok(())
    }

    /// What the table says belongs to the dead becomes nobody's, for any heap to adopt; chunks of claims and
    /// releases that were never finished become free. How many of both.
    ///
    /// Whoever is dead must be fenced. Where there are copies to tell, one does this at a time; who looks at the primary
    /// alone does no harm if he is late, or another one does the same.
    pub async fn disown(
        &self,
        worker: &Worker,
        is_dead: &dyn Fn(u64) -> bool,
    ) -> Result<(usize, usize)> {
        let table = self.read_table(worker).await?;
        let (mut slabs, mut leftovers) = (0, 0);
        for (chunk, entry, whole) in owned(&table) {
            let is_left = entry.owner == NOBODY && !whole;
            if !is_dead(entry.owner) && !is_left {
                continue;
            }
            let heir = whole.then_some(Entry { owner: NOBODY, ..entry });
            // The copies first: if this comes to no end, the next one begins with it again. What they have may be older: of one
            // whose slab the dead one had adopted, and could not tell them.
            let words = heir.map_or(vec![0], Entry::words);
            self.tell(worker, &self.replicas[1..], chunk, &words).await?;
            let left = heir.map_or(0, Entry::to_word);
            let changed = usize::from(self.cas(worker, chunk, entry.to_word(), left).await?);
            self.inherit(worker, &self.joining, chunk, (entry, heir)).await?;
            if whole {
                probe!("a slab of a dead owner is disowned");
                slabs += changed;
            } else {
                probe!("a chunk of an unfinished claim is freed");
                leftovers += changed;
            }
        }
        self.clear_leftovers(worker, &table, is_dead).await?;
        Ok((slabs, leftovers))
    }

    /// Copies forget claims of some that the primary knows nothing of: they were told, and then the primary was another one; or they were
    /// to be told that it is nobody's any more, with an error. `table` is what the primary has, or had: whoever claims the chunk meanwhile
    /// tells the copies in its own name.
    pub(super) async fn clear_leftovers(
        &self,
        worker: &Worker,
        table: &[u64],
        is_theirs: &dyn Fn(u64) -> bool,
    ) -> Result<()> {
        for copy in self.replicas[1..].iter().chain(&self.joining) {
            let told = self.read_table_of(worker, copy).await?;
            for (chunk, word) in told.iter().enumerate().skip(1) {
                let is_of_them =
                    |word| Entry::from_word(word).is_some_and(|it| is_theirs(it.owner));
                if is_of_them(*word) && !is_of_them(table[chunk]) {
                    probe!("a copy forgets a claim that its primary does not know");
                    let one = std::slice::from_ref(copy);
                    self.swap(worker, one, chunk as u64 * 8, (*word, table[chunk])).await?;
                }
            }
        }
        Ok(())
    }

    async fn cas(&self, worker: &Worker, chunk: u64, old: u64, new: u64) -> Result<bool> {
        let (primary, base) = &self.replicas[0];
        let mut round = worker.round();
        let found = round.to(primary).cas(base + chunk * 8, old, new);
        Ok(round.ring().await?[found] == old)
    }

    /// Changes the owner of a slab at some copies, unless they have heard of another one.
    async fn inherit(
        &self,
        worker: &Worker,
        copies: &[(Queue, u64)],
        chunk: u64,
        (old, heir): (Entry, Option<Entry>),
    ) -> Result<()> {
        if copies.is_empty() {
            return Ok(());
        }
        let words = heir.map_or(vec![0], Entry::words);
        let mut round = worker.round();
        for (copy, base) in copies {
            let mut bell = round.to(copy);
            bell.cas(base + chunk * 8, old.to_word(), words[0]);
            // They may not have been told of it at all.
            for (at, word) in (chunk..).zip(&words) {
                bell.cas(base + at * 8, 0, *word);
            }
        }
        round.ring().await?;
        Ok(())
    }

    /// Only who has the word at the primary writes those at the copies, and has waited for that before it
    /// gives it up.
    async fn tell_copies(&self, worker: &Worker, chunk: u64, words: &[u64]) -> Result<()> {
        self.tell(worker, &self.replicas[1..], chunk, words).await?;
        self.tell(worker, &self.joining, chunk, words).await
    }

    async fn tell(
        &self,
        worker: &Worker,
        copies: &[(Queue, u64)],
        chunk: u64,
        words: &[u64],
    ) -> Result<()> {
        if copies.is_empty() {
            return Ok(());
        }
        let mut round = worker.round();
        for (copy, base) in copies {
            round.to(copy).write(base + chunk * 8, words);
        }
        round.ring().await?;
        Ok(())
    }
}

/// The words of a table that belong to somebody by themselves: heads of whole slabs (`true`), and what is
/// left of claims and releases. The inner words of a slab belong to whoever has its head.
pub(super) fn owned(table: &[u64]) -> Vec<(u64, Entry, bool)> {
    let mut owned = Vec::new();
    let mut covered = 0;
    for (chunk, word) in table.iter().enumerate().skip(1) {
        let Some(entry) = Entry::from_word(*word) else { continue };
        let whole = entry.is_whole(&table[chunk..]);
        if whole {
            covered = chunk + entry.class.chunks() as usize;
        }
        if whole || chunk >= covered {
            owned.push((chunk as u64, entry, whole));
        }
    }
    owned
}
