//! The board, in the system chunk: sessions write their own lines, and whoever copies it looks that they have.

use std::time::Duration;

use super::unguarded::Pair;
use super::{Acting, Copy};
use crate::queues::replicas;
use crate::system::{self, CLIENT, FORMAT, OLDEST, REQUEST, SCRUBBED, SESSIONS, SINCE};
use crate::{Scrubbed, TxnError};

/// How often lines are looked at until their owners have written them.
const PAUSE: Duration = Duration::from_micros(200);

impl Copy<'_> {
    /// How much differed that was to be copied.
    pub(super) async fn copy_board(&self) -> Result<usize, TxnError> {
        let acting = self.act().await?;
        // These only ever grow.
        let grows = |here: u64, there: u64| (here > there).then_some(here);
        let mut differed = self.copy_words(&acting, &[FORMAT, REQUEST, SESSIONS], grows).await?;
        let sessions = self.sessions(&acting).await?;
        let lines = || (0..sessions as u16).map(system::line);
        let since: Vec<u64> = lines().map(|line| line + SINCE).collect();
        differed += self.copy_words(&acting, &since, grows).await?;
        // Nobody is there who is not; those who are say so themselves.
        let gone = |here, there| (here == 0 && there != 0).then_some(0);
        let clients: Vec<u64> = lines().map(|line| line + CLIENT).collect();
        differed += self.copy_words(&acting, &clients, gone).await?;
        let scrubbed: Vec<u64> = (0..Scrubbed::WORDS as u64).map(|at| SCRUBBED + at * 8).collect();
        differed += self.copy_words(&acting, &scrubbed, |here, _| Some(here)).await?;
        drop(acting);
        self.wait_for_sessions(sessions).await?;
        let copied = self.copy_some(&[system::catalog_target()]).await?;
        Ok(differed + copied)
    }

    async fn sessions(&self, acting: &Acting) -> Result<u64, TxnError> {
        let primary = replicas(acting.permit.config(), system::catalog_root())?[0];
        let mut round = self.agent.worker.round();
        let word = round.to(acting.queues.to(primary.node)?).read(primary.base + SESSIONS, 8);
        Ok(round.ring().await?[word][0])
    }

    /// Whoever is there has written its line, or is taken for dead.
    async fn wait_for_sessions(&self, sessions: u64) -> Result<(), TxnError> {
        let lines = || (0..sessions as u16).map(system::line);
        let words: Vec<u64> = lines().flat_map(|line| [line + CLIENT, line + OLDEST]).collect();
        let start = self.agent.worker.now();
        loop {
            let acting = self.act().await?;
            let pairs = self.read_pairs(&acting, &words).await?;
            let (lines, _) = pairs.as_chunks::<2>();
            let is_told = |[client, oldest]: &[Pair; 2]| {
                client.here == client.there && (client.here == 0 || oldest.there != 0)
            };
            if lines.iter().all(is_told) {
                return Ok(());
            }
            drop(acting);
            if self.agent.worker.now() - start > 8 * self.agent.lease() {
                return Err(TxnError::TimedOut("the lines of other sessions"));
            }
            self.agent.worker.sleep(PAUSE).await;
        }
    }
}
