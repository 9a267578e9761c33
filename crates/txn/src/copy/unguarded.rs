//! What no lock guards: the table of slabs, first words, large bodies. Whoever writes these writes the primary first; who
//! copies them writes, and reads the primary again, until nothing has changed.

use farside_fabric::probe;
use farside_pool::alloc::{FREED, SlabAt};

use super::{Acting, Copy};
use crate::TxnError;
use crate::object::Raw;

/// How often something may change while it is copied.
pub(super) const MOST_TRIES: u32 = 1000;

/// Words that are read at once.
const WORDS_AT_ONCE: usize = 1024;

/// A word of the region at the primary, and at the copy.
pub(super) struct Pair {
    pub(super) offset: u64,
    pub(super) here: u64,
    pub(super) there: u64,
}

/// Whether a place in which nobody expects an object has a large body.
pub(super) fn is_body(header: u64) -> bool {
    header > FREED && Raw::from_word(header) == Raw::Other
}

/// What the first word of such a place is to be at a copy; `None`: as it is.
pub(super) fn first_word(here: u64, there: u64) -> Option<u64> {
    // Whoever writes a record outside of a ring writes it there, too, perhaps first.
    let comes = here == 0 && matches!(Raw::from_word(there), Raw::Spilled(_));
    // That of a large body is copied with it.
    (!comes && !is_body(here)).then_some(here)
}

impl Copy<'_> {
    /// The table of slabs; how many words differed.
    pub(super) async fn copy_table(&self) -> Result<usize, TxnError> {
        let acting = self.act().await?;
        let bytes = self.place(&acting)?.table_bytes();
        let offsets: Vec<u64> = (0..bytes / 8).map(|word| word * 8).collect();
        self.copy_words(&acting, &offsets, |here, _| Some(here)).await
    }

    /// Single words. `becomes` says what a word is to be, from what it is here and there; `None`: it is not to be copied.
    pub(super) async fn copy_words(
        &self,
        acting: &Acting,
        offsets: &[u64],
        becomes: impl Fn(u64, u64) -> Option<u64>,
    ) -> Result<usize, TxnError> {
        let mut differed = 0;
        for some in offsets.chunks(WORDS_AT_ONCE) {
            let mut left = some.to_vec();
            for tries in 0.. {
                let pairs = self.read_pairs(acting, &left).await?;
                let mut round = self.agent.worker.round();
                let copy = acting.queues.to(self.to.node)?;
                left.clear();
                for Pair { offset, here, there } in pairs {
                    if let Some(word) = becomes(here, there).filter(|word| *word != there) {
                        round.to(copy).cas(self.to.base + offset, there, word);
                        left.push(offset);
                    }
                }
                if left.is_empty() {
                    break;
                }
                if tries == MOST_TRIES {
                    return Err(TxnError::TimedOut("a copy of words that always change"));
                }
                if tries == 0 {
                    differed += left.len();
                }
                round.ring().await?;
            }
        }
        Ok(differed)
    }

    pub(super) async fn read_pairs(
        &self,
        acting: &Acting,
        offsets: &[u64],
    ) -> Result<Vec<Pair>, TxnError> {
        let (primary, base) = acting.primary()?;
        let copy = acting.queues.to(self.to.node)?;
        let mut round = self.agent.worker.round();
        let mut tickets = Vec::with_capacity(offsets.len());
        for offset in offsets {
            let here = round.to(primary).read(base + offset, 8);
            tickets.push((*offset, here, round.to(copy).read(self.to.base + offset, 8)));
        }
        let done = round.ring().await?;
        let pair = |(offset, here, there)| {
            let (here, there): (&[u64], &[u64]) = (&done[here], &done[there]);
            Pair { offset, here: here[0], there: there[0] }
        };
        Ok(tickets.into_iter().map(pair).collect())
    }

    /// A slab of the sort in which nobody expects objects; how much differed. `None` if it may be another one than it was when
    /// that was learned.
    pub(super) async fn copy_raw(
        &self,
        slab: &SlabAt,
        learned: u64,
    ) -> Result<Option<usize>, TxnError> {
        // As long as there is one, the slab stays what it is.
        let txn = self.agent.begin(None).await?;
        if !txn.may_use(learned) {
            return Ok(None);
        }
        let acting = self.act().await?;
        let offsets: Vec<u64> = slab.offsets().collect();
        let mut differed = self.copy_words(&acting, &offsets, first_word).await?;
        for pair in self.read_pairs(&acting, &offsets).await? {
            if is_body(pair.here) {
                differed += self.copy_body(&acting, pair.offset, slab.class.bytes()).await?;
            }
        }
        Ok(Some(differed))
    }

    /// A large body with its first word, as it is at the primary; `None` if it is the same there.
    pub(super) async fn different_body(
        &self,
        acting: &Acting,
        offset: u64,
        bytes: u64,
    ) -> Result<Option<Vec<u64>>, TxnError> {
        let (primary, base) = acting.primary()?;
        let copy = acting.queues.to(self.to.node)?;
        let mut round = self.agent.worker.round();
        let here = round.to(primary).read(base + offset, bytes as usize);
        let there = round.to(copy).read(self.to.base + offset, bytes as usize);
        let done = round.ring().await?;
        Ok((done[here] != done[there]).then(|| done[here].to_vec()))
    }

    /// A large body: it stays where it is as long as a copy is made.
    async fn copy_body(&self, acting: &Acting, offset: u64, bytes: u64) -> Result<usize, TxnError> {
        for tries in 0..MOST_TRIES {
            let Some(body) = self.different_body(acting, offset, bytes).await? else {
                return Ok(usize::from(tries > 0));
            };
            probe!("a large body is copied");
            let mut round = self.agent.worker.round();
            round.to(acting.queues.to(self.to.node)?).write(self.to.base + offset, &body);
            round.ring().await?;
        }
        Err(TxnError::TimedOut("a copy of a body that always changes"))
    }
}
