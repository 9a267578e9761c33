//! Every state that can be reached, the nearest first.

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hash, Hasher};

use crate::rules::{Broken, Scope};
use crate::step::{self, Step};
use crate::world::World;

/// What a search has found.
pub(crate) struct Found {
    pub(crate) states: usize,
    /// What the ends show, together.
    pub(crate) sights: [bool; 5],
    /// The shortest way to something that is broken.
    pub(crate) broken: Option<(Broken, Vec<Step>)>,
}

/// States are kept as 128 bits of hash: that two of some millions have the same one has a chance of
/// about 10^-24. All that a state is made of are small numbers, taken together here by eights.
#[derive(Clone, Copy, Default)]
struct Lanes {
    word: u64,
    bytes: u32,
    lanes: [u64; 2],
}

impl Lanes {
    fn mix(&mut self) {
        let [a, b] = self.lanes;
        let a = (a ^ self.word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let b = (b.rotate_left(23) ^ self.word).wrapping_mul(0xd6e8_feb8_6659_fd93);
        self.lanes = [a ^ a >> 32, b ^ b >> 29];
        (self.word, self.bytes) = (0, 0);
    }

    fn fingerprint(mut self) -> u128 {
        // The last words have to reach all bits.
        (0..3).for_each(|_| {
            self.word ^= 0x5851_f42d_4c95_7f2d;
            self.mix();
        });
        u128::from(self.lanes[0]) << 64 | u128::from(self.lanes[1])
    }
}

impl Hasher for Lanes {
    fn finish(&self) -> u64 {
        self.lanes[0]
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u8(*byte));
    }

    fn write_u8(&mut self, byte: u8) {
        self.word = self.word << 8 | u64::from(byte);
        self.bytes += 1;
        if self.bytes == 8 {
            self.mix();
        }
    }

    /// How long an array is: always the same.
    fn write_usize(&mut self, _: usize) {}

    /// Which of some variants it is.
    fn write_isize(&mut self, variant: isize) {
        self.write_u8(variant as u8);
    }
}

/// Takes hashes as they are.
#[derive(Clone, Copy, Default)]
struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {}

    fn write_u128(&mut self, word: u128) {
        self.0 = word as u64 ^ (word >> 64) as u64;
    }
}

fn fingerprint(world: &World) -> u128 {
    let mut lanes = Lanes::default();
    world.hash(&mut lanes);
    lanes.fingerprint()
}

/// Searches until something is broken, or everything was seen.
pub(crate) fn search(scope: &Scope) -> Found {
    let start = World::new(scope);
    let mut known: HashSet<u128, BuildHasherDefault<AsItIs>> = HashSet::default();
    known.insert(fingerprint(&start));
    // For each state the one before it, and which of the steps from there it is.
    let mut came: Vec<(u32, u8)> = vec![(0, 0)];
    let mut frontier = vec![(0u32, start)];
    let (mut next, mut sights) = (Vec::new(), [false; 5]);
    while !frontier.is_empty() {
        let mut further = Vec::new();
        for (number, world) in frontier {
            next.clear();
            step::successors(&world, scope, &mut next);
            if world.is_quiet() {
                sights.iter_mut().zip(world.sights()).for_each(|(all, one)| *all |= one);
            }
            if let Some(broken) = judge(&world, scope, &next) {
                let run = replay(scope, &came, number);
                return Found { states: known.len(), sights, broken: Some((broken, run)) };
            }
            for (index, (_, after)) in next.drain(..).enumerate() {
                if known.insert(fingerprint(&after)) {
                    further.push((came.len() as u32, after));
                    came.push((number, index as u8));
                }
            }
        }
        frontier = further;
    }
    Found { states: known.len(), sights, broken: None }
}

fn judge(world: &World, scope: &Scope, next: &[(Step, World)]) -> Option<Broken> {
    if world.is_quiet() {
        return world.judge(scope);
    }
    let can_go_on = next.iter().any(|(step, _)| !step.is_optional() && !step.is_of_reader());
    (!can_go_on).then_some(Broken::Stuck)
}

/// The steps to a state.
fn replay(scope: &Scope, came: &[(u32, u8)], mut number: u32) -> Vec<Step> {
    let mut choices = Vec::new();
    while number != 0 {
        let (before, index) = came[number as usize];
        choices.push(usize::from(index));
        number = before;
    }
    let (mut world, mut run) = (World::new(scope), Vec::new());
    for index in choices.into_iter().rev() {
        let mut next = Vec::new();
        step::successors(&world, scope, &mut next);
        let (step, after) = next.swap_remove(index);
        run.push(step);
        world = after;
    }
    run
}
