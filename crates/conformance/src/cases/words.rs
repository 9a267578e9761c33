//! C2 and C3: words are atomic, larger things are not, and one can tell.

use anyhow::{Result, ensure};
use farside_fabric::{FabricError, MaskedCas, Refusal};

use super::{finish, queues, read, start};
use crate::actor::{Job, Role, checksum, pattern};
use crate::bed::Bed;

const AT: u64 = 8192;

async fn all_count(bed: &dyn Bed, role: Role) -> Result<()> {
    let count = bed.times(20_000);
    let job = |me| Job { role, node: 1, at: AT, count, me };
    let actors = start(bed, &[job(1), job(2), job(3)]).await?;
    finish(bed, actors).await?;
    let found = read(bed, &queues(bed)?[1], AT, 1).await?;
    ensure!(found == [3 * count], "{found:?} instead of 3 times {count} were counted");
    Ok(())
}

pub(super) async fn additions_of_many_clients_all_count(bed: &dyn Bed) -> Result<()> {
    all_count(bed, Role::Add).await
}

pub(super) async fn swaps_of_many_clients_all_count(bed: &dyn Bed) -> Result<()> {
    all_count(bed, Role::CasAdd).await
}

pub(super) async fn a_masked_cas_compares_and_swaps_only_its_bits(bed: &dyn Bed) -> Result<()> {
    let (worker, queues) = (bed.worker(), queues(bed)?);
    let node = &queues[0];
    let attempt = |expected| {
        let mut round = worker.round();
        round.to(node).write(AT, &[0xaabb_ccdd]);
        let cas =
            MaskedCas { expected, desired: 0x1122_3344, compare_mask: 0xff, swap_mask: 0xff00 };
        let old = round.to(node).masked_cas(AT, cas);
        let new = round.to(node).read(AT, 8);
        (round.ring(), old, new)
    };
    let (matching, old, new) = attempt(0x99dd);
    if !node.capabilities().masked_cas {
        let refused = matching.await.err();
        let unsupported =
            matches!(refused, Some(FabricError::Refused(Refusal::Unsupported { .. })));
        ensure!(unsupported, "not offered, but {refused:?}");
        ensure!(read(bed, node, AT, 1).await? == [0], "refused, but with an effect");
        return Ok(());
    }
    let done = matching.await?;
    ensure!(done[old] == 0xaabb_ccdd && done[new] == [0xaabb_33dd]);
    let (differing, old, new) = attempt(0x99de);
    let done = differing.await?;
    ensure!(done[old] == 0xaabb_ccdd && done[new] == [0xaabb_ccdd]);
    Ok(())
}

fn pattern_writer(me: u64) -> Job {
    Job { role: Role::WritePatterns, node: 0, at: AT, count: u64::MAX, me }
}

/// A writer overwrites 512 bytes again and again. A reader sees parts of two of them now and then,
/// the checksum tells it every time, and where the backend promises whole lines, they are whole.
pub(super) async fn torn_reads_occur_and_are_detected(bed: &dyn Bed) -> Result<()> {
    let (worker, queues) = (bed.worker(), queues(bed)?);
    let node = &queues[0];
    let line_atomic = node.capabilities().line_atomic;
    let mut actors = start(bed, &[pattern_writer(1)]).await?;
    let mut seen = (0u64, 0u64);
    while seen.0 < bed.times(100_000) || (seen.1 == 0 && !line_atomic) {
        let mut round = worker.round();
        let object = round.to(node).read(AT, 512);
        let done = round.ring().await?;
        let words = &done[object];
        let number = words[0].wrapping_mul(INVERSE);
        let whole = words == pattern(number) || words == [0; 64];
        let valid = checksum(&words[..63]) == words[63] || words == [0; 64];
        ensure!(whole == valid, "the checksum takes {words:x?} for a whole pattern");
        if line_atomic {
            let first = pattern(number);
            ensure!(words[..8] == first[..8] || words[..8] == [0; 8], "a torn line: {words:x?}");
        }
        seen = (seen.0 + 1, seen.1 + u64::from(!whole));
    }
    actors[0].kill();
    Ok(())
}

/// The inverse of the factor that patterns begin with.
const INVERSE: u64 = {
    let factor: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut inverse: u64 = 1;
    let mut step = 0;
    while step < 6 {
        inverse = inverse.wrapping_mul(2u64.wrapping_sub(factor.wrapping_mul(inverse)));
        step += 1;
    }
    assert!(factor.wrapping_mul(inverse) == 1);
    inverse
};

/// Every word that is read was written as a whole by someone, even where words of several writes
/// are mixed.
pub(super) async fn a_word_is_never_torn(bed: &dyn Bed) -> Result<()> {
    let (worker, queues) = (bed.worker(), queues(bed)?);
    let node = &queues[0];
    let mut actors = start(bed, &[pattern_writer(1), pattern_writer(2)]).await?;
    let mut largest = 0;
    for _ in 0..bed.times(100_000) {
        let mut round = worker.round();
        let object = round.to(node).read(AT, 63 * 8);
        let done = round.ring().await?;
        for (k, word) in done[object].iter().enumerate() {
            let number = word.rotate_right(k as u32).wrapping_mul(INVERSE);
            // Writers count up from 1; a word mixed from two of theirs names an absurd number.
            ensure!(number < 1 << 40, "word {k} is {word:x}, which nobody wrote");
            largest = largest.max(number);
        }
    }
    ensure!(largest > 0, "the writers wrote nothing");
    actors.iter_mut().for_each(|actor| actor.kill());
    Ok(())
}
