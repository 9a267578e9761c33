//! What a node tells of its clock: the time, and which clock that is. Processes of one host have the same one.

use std::os::unix::fs::MetadataExt;
use std::sync::OnceLock;

use crate::runtime::Time;

/// A monotonic clock: a machine, a boot of its kernel, and the namespace in which time is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct ClockId([u64; 2]);

impl ClockId {
    /// That of this process; `None` where it cannot be told.
    fn of_self() -> Option<ClockId> {
        static OURS: OnceLock<Option<ClockId>> = OnceLock::new();
        *OURS.get_or_init(|| {
            let namespace = std::fs::metadata("/proc/self/ns/time").ok()?.ino();
            Some(ClockId([boot_id().ok()? ^ machine_id().rotate_left(32), namespace]))
        })
    }
}

/// What a node says when it is asked for the time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Told {
    /// The time by its clock, at some moment between asking and hearing.
    pub time: u64,
    /// By how much its time is ahead of the clock of this process, if it is that clock: a bound without any uncertainty.
    pub ahead_of_ours: Option<u64>,
}

impl Told {
    /// The answer of a node whose time is so much ahead of the clock of its host.
    pub(crate) fn answer(ahead: u64) -> Vec<u8> {
        let time = Time::of_host().0 + ahead;
        let mut words = vec![time];
        if let Some(ClockId([host, namespace])) = ClockId::of_self() {
            words.extend([host, namespace, ahead]);
        }
        words.into_iter().flat_map(u64::to_le_bytes).collect()
    }

    /// Understands an answer. Who was asked at `sent` and told at `received`, by the own clock, says so: machines that were copied while they
    /// ran have the same names, but not the same time.
    pub fn understand(answer: &[u8], sent: Time, received: Time) -> Option<Told> {
        let (words, rest) = answer.as_chunks::<8>();
        if !rest.is_empty() {
            return None;
        }
        let mut words = words.iter().map(|word| u64::from_le_bytes(*word));
        let time = words.next()?;
        let more: Vec<u64> = words.collect();
        let ahead_of_ours = match more[..] {
            [host, namespace, ahead] if ClockId::of_self() == Some(ClockId([host, namespace])) => {
                let theirs = Time(time.wrapping_sub(ahead));
                (sent..=received).contains(&theirs).then_some(ahead)
            }
            _ => None,
        };
        Some(Told { time, ahead_of_ours })
    }
}

/// Of the kernel that runs.
pub(crate) fn boot_id() -> std::io::Result<u64> {
    Ok(hash(std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim()))
}

/// Where there is no id, only processes of this machine can be meant.
pub(crate) fn machine_id() -> u64 {
    std::fs::read_to_string("/etc/machine-id").map_or(0, |id| hash(id.trim()))
}

/// FNV-1a: stable across processes and versions.
fn hash(text: &str) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    text.as_bytes().iter().fold(0xcbf2_9ce4_8422_2325, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_ours_is_known_exactly() {
        let sent = Time::of_host();
        let answer = Told::answer(17);
        let told = Told::understand(&answer, sent, Time::of_host()).unwrap();
        assert_eq!(told.ahead_of_ours, Some(17));
        assert!(told.time >= sent.0 + 17);
    }

    #[test]
    fn a_clock_of_the_same_name_with_another_time_is_another() {
        let before = Time::of_host();
        let answer = Told::answer(0);
        let later = Time(Time::of_host().0 + 1);
        let told = |sent, received| Told::understand(&answer, sent, received).unwrap();
        assert_eq!(told(later, Time(later.0 + 1000)).ahead_of_ours, None);
        assert_eq!(told(Time(before.0 - 1000), Time(before.0 - 1)).ahead_of_ours, None);
    }

    #[test]
    fn another_clock_tells_no_more_than_its_time() {
        let mut answer = Told::answer(0);
        let time = u64::from_le_bytes(answer[..8].try_into().unwrap());
        answer[8] ^= 1;
        let all = (Time(0), Time(u64::MAX));
        let only_time = Some(Told { time, ahead_of_ours: None });
        assert_eq!(Told::understand(&answer, all.0, all.1), only_time);
        assert_eq!(Told::understand(&answer[..8], all.0, all.1), only_time);
        assert_eq!(Told::understand(&answer[..9], all.0, all.1), None);
        assert_eq!(Told::understand(&[], all.0, all.1), None);
    }
}
