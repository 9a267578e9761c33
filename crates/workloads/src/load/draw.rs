//! Choosing keys and kinds.

use farside_fabric::runtime::Random;

/// Numbers below a bound, of which a few come often: the k-th with a share of 1/k^skew.
#[derive(Clone, Copy, Debug)]
pub struct Zipf {
    bound: u64,
    skew: f64,
    zeta: f64,
    sampler: Sampler,
}

/// How ranks are drawn.
#[derive(Clone, Copy, Debug)]
enum Sampler {
    /// All are equal.
    Even,
    /// Below a skew of 1 (Gray et al., "Quickly generating billion-record synthetic databases"): exact for the first two.
    Gentle { alpha: f64, eta: f64 },
    /// Any skew (Hörmann and Derflinger, "Rejection-inversion to generate variates from monotone discrete distributions"): exact.
    Steep { first: f64, last: f64, sure: f64 },
}

/// The skew at most: the most wanted one is nearly alone then.
pub const MOST_SKEW: f64 = 10.0;

impl Zipf {
    /// Below `bound`. A skew of 0 makes all equal.
    pub fn new(bound: u64, skew: f64) -> Self {
        assert!(bound > 0 && (0.0..=MOST_SKEW).contains(&skew), "a bound, and a skew");
        let zeta = |n: u64| (1..=n).map(|k| (k as f64).powf(-skew)).sum::<f64>();
        let all = zeta(bound);
        let sampler = match skew {
            0.0 => Sampler::Even,
            _ if skew < 1.0 => Sampler::Gentle {
                alpha: 1.0 / (1.0 - skew),
                eta: (1.0 - (2.0 / bound as f64).powf(1.0 - skew))
                    / (1.0 - zeta(2.min(bound)) / all),
            },
            _ => Sampler::Steep {
                first: area(skew, 1.5) - 1.0,
                last: area(skew, bound as f64 + 0.5),
                sure: 2.0 - area_until(skew, area(skew, 2.5) - 2f64.powf(-skew)),
            },
        };
        Zipf { bound, skew, zeta: all, sampler }
    }

    /// How often the k-th comes, from 0.
    pub fn share(&self, rank: u64) -> f64 {
        ((rank + 1) as f64).powf(-self.skew) / self.zeta
    }

    /// A rank: 0 comes most often.
    pub fn rank(&self, random: &mut Random) -> u64 {
        match self.sampler {
            Sampler::Even => random.below(self.bound),
            Sampler::Gentle { alpha, eta } => {
                let u = unit(random);
                let scaled = u * self.zeta;
                if scaled < 1.0 {
                    return 0;
                }
                if scaled < 1.0 + 0.5f64.powf(self.skew) {
                    return 1.min(self.bound - 1);
                }
                let rank = self.bound as f64 * (eta * u - eta + 1.0).powf(alpha);
                (rank as u64).min(self.bound - 1)
            }
            Sampler::Steep { first, last, sure } => loop {
                let drawn = last + unit(random) * (first - last);
                let at = area_until(self.skew, drawn);
                let rank = at.round().clamp(1.0, self.bound as f64);
                if rank - at <= sure || drawn >= area(self.skew, rank + 0.5) - rank.powf(-self.skew)
                {
                    return rank as u64 - 1;
                }
            },
        }
    }

    /// A key. The frequent ones are spread over all keys, each rank always at the same one.
    pub fn key(&self, random: &mut Random) -> u64 {
        scatter(self.rank(random), self.bound)
    }
}

/// The area under 1/x^skew from 1 to x, for a skew of at least 1.
fn area(skew: f64, x: f64) -> f64 {
    let (log, slope) = (x.ln(), 1.0 - skew);
    if slope == 0.0 { log } else { (slope * log).exp_m1() / slope }
}

/// Where that is so large.
fn area_until(skew: f64, area: f64) -> f64 {
    let slope = 1.0 - skew;
    if slope == 0.0 { area.exp() } else { ((slope * area).max(-1.0).ln_1p() / slope).exp() }
}

/// Another number below the bound for each: Feistel's rounds, walked until they are within.
fn scatter(number: u64, bound: u64) -> u64 {
    let half = (64 - (bound - 1).max(1).leading_zeros()).div_ceil(2);
    let mask = (1u64 << half) - 1;
    let mut at = number;
    loop {
        let (mut left, mut right) = (at >> half, at & mask);
        for round in 1..=4u64 {
            let mixed = (right ^ round << 7).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
            (left, right) = (right, (left ^ mixed) & mask);
        }
        at = left << half | right;
        if at < bound {
            return at;
        }
    }
}

/// At least 0, and below 1.
fn unit(random: &mut Random) -> f64 {
    (random.draw() >> 11) as f64 / (1u64 << 53) as f64
}

/// Numbers below a bound, of which a part takes most: as SmallBank's accounts.
#[derive(Clone, Copy, Debug)]
pub struct Hot {
    bound: u64,
    hot: u64,
    /// How many of a hundred go there.
    percent: u64,
}

impl Hot {
    /// Below `bound`: the first `hot` of them take `percent` of a hundred.
    pub fn new(bound: u64, hot: u64, percent: u64) -> Self {
        assert!(bound > 0 && percent <= 100, "a bound, and a share");
        Hot { bound, hot: hot.clamp(1, bound), percent }
    }

    /// One of them.
    pub fn draw(&self, random: &mut Random) -> u64 {
        if self.hot == self.bound || random.below(100) < self.percent {
            random.below(self.hot)
        } else {
            self.hot + random.below(self.bound - self.hot)
        }
    }

    /// Two that differ; the same one twice if there is but one.
    pub fn draw_two(&self, random: &mut Random) -> (u64, u64) {
        let first = self.draw(random);
        loop {
            let second = self.draw(random);
            if second != first || self.bound == 1 {
                return (first, second);
            }
        }
    }
}

/// Kinds by their shares of a hundred.
#[derive(Clone, Copy, Debug)]
pub struct Mix(pub &'static [u64]);

impl Mix {
    /// One of them, by its number.
    pub fn draw(&self, random: &mut Random) -> usize {
        let mut left = random.below(self.0.iter().sum());
        for (kind, share) in self.0.iter().enumerate() {
            if left < *share {
                return kind;
            }
            left -= share;
        }
        unreachable!("below the sum")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: u64 = 200_000;

    /// Three standard deviations of a count.
    fn near(count: u64, share: f64) -> bool {
        let expected = DRAWS as f64 * share;
        (count as f64 - expected).abs() <= 4.0 * expected.sqrt().max(1.0)
    }

    #[test]
    fn frequent_ones_are_as_frequent_as_they_should_be() {
        let random = &mut Random::new(1);
        let gentle = [(1000, 0.99), (1_000_000, 0.99), (100, 0.5), (10, 0.0)];
        let steep = [(1000, 1.0), (1_000_000, 1.2), (10, 3.0), (1, 1.5), (2, MOST_SKEW)];
        for (bound, skew) in gentle.into_iter().chain(steep) {
            let zipf = Zipf::new(bound, skew);
            let mut counts = vec![0u64; bound as usize];
            (0..DRAWS).for_each(|_| counts[zipf.rank(random) as usize] += 1);
            // The first two are exact; the others by an approximation, so by their sums.
            assert!(near(counts[0], zipf.share(0)), "{bound} {skew}: {}", counts[0]);
            if bound > 1 {
                assert!(near(counts[1], zipf.share(1)), "{bound} {skew}: {}", counts[1]);
            }
            for part in [10, 100, 1000].into_iter().filter(|part| *part < bound) {
                let got: u64 = counts[..part as usize].iter().sum();
                let share: f64 = (0..part).map(|rank| zipf.share(rank)).sum();
                let off = got as f64 / DRAWS as f64 / share;
                assert!((0.93..1.07).contains(&off), "{bound} {skew} {part}: {off}");
            }
        }
    }

    #[test]
    fn every_rank_has_a_key_of_its_own() {
        for bound in [1, 2, 3, 1000, 4096, 5000] {
            let mut keys: Vec<u64> = (0..bound).map(|rank| scatter(rank, bound)).collect();
            keys.sort_unstable();
            assert!(keys.iter().copied().eq(0..bound), "{bound}");
        }
    }

    #[test]
    fn hot_accounts_take_their_share() {
        let (random, hot) = (&mut Random::new(2), Hot::new(100_000, 4000, 90));
        let draws: Vec<u64> = (0..DRAWS).map(|_| hot.draw(random)).collect();
        assert!(draws.iter().all(|draw| *draw < 100_000));
        let taken = draws.iter().filter(|draw| **draw < 4000).count() as u64;
        assert!(near(taken, 0.9), "{taken}");
        let (one, two) = hot.draw_two(random);
        assert_ne!(one, two);
        assert_eq!(Hot::new(1, 1, 90).draw_two(random), (0, 0));
    }

    #[test]
    fn kinds_come_in_their_shares() {
        let (random, mix) = (&mut Random::new(3), Mix(&[15, 15, 15, 25, 15, 15]));
        let mut counts = [0; 6];
        (0..DRAWS).for_each(|_| counts[mix.draw(random)] += 1);
        for (count, share) in counts.iter().zip(mix.0) {
            assert!(near(*count, *share as f64 / 100.0), "{counts:?}");
        }
    }
}
