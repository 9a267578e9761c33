//! A model of the version cache at a node (`far_versions.rs`): writers of two objects that share a place, and one who reads, asks the
//! cache, and fills it in. Every order of verbs, also of those that are posted together; verbs of the dead that land late, or are fenced.
//! With all rules, whatever the cache says was so when its marks were read, and nobody was about to change it. Without any of them
//! it lies.

use std::collections::{HashSet, VecDeque};

/// A rule that is left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Rule {
    /// Whoever asks does not believe a print while somebody else has a mark.
    MarksCount,
    /// The marks are read before the print.
    MarksFirst,
    /// A writer takes its commit time when it has marked the place.
    MarkedBeforeItsTime,
    /// A writer tells which version there will be.
    Told,
    /// Locks and marks are given back when it is known that the cache was told.
    ToldBeforeRelease,
    /// Marks stay where it is not known whether the cache was told.
    UntoldMarksStay,
    /// A place is filled in by whoever finds the marks as they were when it asked.
    FilledInIfUnmarked,
    /// It is erased again, if there are more marks afterwards.
    ErasedIfMarked,
}

const RULES: [Rule; 8] = [
    Rule::MarksCount,
    Rule::MarksFirst,
    Rule::MarkedBeforeItsTime,
    Rule::Told,
    Rule::ToldBeforeRelease,
    Rule::UntoldMarksStay,
    Rule::FilledInIfUnmarked,
    Rule::ErasedIfMarked,
];

/// Objects: the reader's, and one that shares its place.
const OBJECTS: usize = 2;
const X: u8 = 0;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Stage {
    Begins,
    /// Its lock and its mark are on their way.
    Locks,
    /// Its body and its print are on their way.
    Installs,
    /// Its lock and its mark are on their way back.
    Releases,
    Done,
}

/// Two verbs of a round: whether they are still on their way.
type Round = [bool; 2];

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Writer {
    object: u8,
    version: u8,
    stage: Stage,
    under_way: Round,
    /// It has its lock.
    holds: bool,
    /// The cache was told, as far as it knows.
    told: bool,
    dead: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Asking {
    Reads,
    /// It has read this version.
    Asks(u8),
    /// It has read one of the two words: the marks, and whether the version was right and would stay so then; or the print.
    Between(u8, Option<(u8, u8, bool)>, Option<(u8, u8)>),
    /// The cache did not know: nobody had marked the place.
    AsksCopies(u8, (u8, u8)),
    Marks(u8, (u8, u8)),
    Fills(u8, u8),
    LooksAgain(u8),
    Erases,
    Leaves,
    Done,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct World {
    versions: [u8; OBJECTS],
    locked: [bool; OBJECTS],
    /// How many, and how many ever were.
    marks: (u8, u8),
    print: Option<(u8, u8)>,
    writers: Vec<Writer>,
    readers: Vec<Asking>,
    lies: bool,
}

impl World {
    fn new(objects: &[u8], readers: usize, print: Option<(u8, u8)>) -> Self {
        let writer = |(number, object): (usize, &u8)| Writer {
            object: *object,
            version: number as u8 + 1,
            stage: Stage::Begins,
            under_way: [false; 2],
            holds: false,
            told: false,
            dead: false,
        };
        World {
            versions: [0; OBJECTS],
            locked: [false; OBJECTS],
            marks: (0, 0),
            print,
            writers: objects.iter().enumerate().map(writer).collect(),
            readers: vec![Asking::Reads; readers],
            lies: false,
        }
    }

    fn mark(&mut self) {
        self.marks = (self.marks.0 + 1, self.marks.1 + 1);
    }

    /// Somebody has taken a time for another version of an object, or may have, and it is not there yet.
    fn is_about_to_change(&self, object: u8, without: Option<Rule>) -> bool {
        self.writers.iter().any(|it| {
            let marked = !it.under_way[1] || without == Some(Rule::MarkedBeforeItsTime);
            let commits = it.stage == Stage::Locks && it.holds && marked && !it.dead
                || it.stage == Stage::Installs && it.under_way[0];
            it.object == object && commits
        })
    }

    fn successors(&self, without: Option<Rule>) -> Vec<World> {
        let mut next = Vec::new();
        for number in 0..self.writers.len() {
            self.write(number, without, &mut next);
        }
        for number in 0..self.readers.len() {
            self.ask(number, without, &mut next);
        }
        next
    }

    /// What the world is after a change.
    fn after(&self, change: &dyn Fn(&mut World)) -> World {
        let mut world = self.clone();
        change(&mut world);
        world
    }

    /// What may become of a writer.
    fn write(&self, number: usize, without: Option<Rule>, next: &mut Vec<World>) {
        self.arrive(number, without, next);
        match self.writers[number].dead {
            true => self.repair(number, next),
            false => self.go_on(number, without, next),
        }
    }

    /// Verbs that are on their way take effect, also those of the dead.
    fn arrive(&self, number: usize, without: Option<Rule>, next: &mut Vec<World>) {
        let has = |rule| without != Some(rule);
        let it = &self.writers[number];
        let object = usize::from(it.object);
        let mut step = |change: &dyn Fn(&mut World)| next.push(self.after(change));
        match it.stage {
            Stage::Locks => {
                if it.under_way[0] && !self.locked[object] {
                    step(&|world| {
                        world.locked[object] = true;
                        world.writers[number].under_way[0] = false;
                        world.writers[number].holds = true;
                    });
                }
                if it.under_way[1] {
                    step(&|world| {
                        world.mark();
                        world.writers[number].under_way[1] = false;
                    });
                }
            }
            Stage::Installs => {
                if it.under_way[0] {
                    step(&|world| {
                        world.versions[object] = world.writers[number].version;
                        world.writers[number].under_way[0] = false;
                    });
                }
                if it.under_way[1] {
                    step(&|world| {
                        let it = &world.writers[number];
                        let print = (it.object, it.version);
                        world.print = has(Rule::Told).then_some(print).or(world.print);
                        world.writers[number].under_way[1] = false;
                        world.writers[number].told = true;
                    });
                    // It fails without an effect; the writer hears of it, and goes on.
                    step(&|world| world.writers[number].under_way[1] = false);
                }
            }
            Stage::Releases => {
                if it.under_way[0] {
                    step(&|world| {
                        world.locked[object] = false;
                        world.writers[number].under_way[0] = false;
                        world.writers[number].holds = false;
                    });
                }
                if it.under_way[1] {
                    step(&|world| {
                        world.marks.0 -= 1;
                        world.writers[number].under_way[1] = false;
                    });
                }
            }
            Stage::Begins | Stage::Done => {}
        }
    }

    /// It is fenced, and then repaired: what is there stays, what is not will not come.
    fn repair(&self, number: usize, next: &mut Vec<World>) {
        let it = &self.writers[number];
        if it.holds {
            next.push(self.after(&|world| {
                world.locked[usize::from(it.object)] = false;
                let it = &mut world.writers[number];
                (it.holds, it.stage, it.under_way) = (false, Stage::Done, [false; 2]);
            }));
        }
    }

    /// What a writer does that lives, or its death.
    fn go_on(&self, number: usize, without: Option<Rule>, next: &mut Vec<World>) {
        let has = |rule| without != Some(rule);
        let it = &self.writers[number];
        let object = usize::from(it.object);
        let mut step = |change: &dyn Fn(&mut World)| next.push(self.after(change));
        if !matches!(it.stage, Stage::Begins | Stage::Done) {
            step(&|world| world.writers[number].dead = true);
        }
        let released = |world: &mut World, marks: bool| {
            let it = &mut world.writers[number];
            (it.stage, it.under_way) = (Stage::Releases, [true, marks]);
        };
        match it.stage {
            Stage::Begins => step(&|world| {
                let it = &mut world.writers[number];
                (it.stage, it.under_way) = (Stage::Locks, [true; 2]);
            }),
            Stage::Locks if !it.under_way[0] => {
                if !it.under_way[1] {
                    step(&|world| released(world, true));
                }
                if !it.under_way[1] || !has(Rule::MarkedBeforeItsTime) {
                    step(&|world| {
                        let it = &mut world.writers[number];
                        // Without the rule its mark comes later, or never.
                        (it.stage, it.under_way) = (Stage::Installs, [true; 2]);
                    });
                }
            }
            Stage::Installs if !it.under_way[0] => {
                let told = it.told || !has(Rule::UntoldMarksStay);
                if !it.under_way[1] {
                    step(&|world| released(world, told && world.marks.0 > 0));
                } else if !has(Rule::ToldBeforeRelease) {
                    // The print comes whenever it comes: the lock and the mark are gone already.
                    step(&|world| {
                        world.locked[object] = false;
                        world.marks.0 -= 1;
                        world.writers[number].holds = false;
                        world.writers[number].dead = true;
                    });
                }
            }
            Stage::Releases if it.under_way == [false; 2] => {
                step(&|world| world.writers[number].stage = Stage::Done);
            }
            _ => {}
        }
    }

    /// What may become of one who reads, asks, and fills in.
    fn ask(&self, number: usize, without: Option<Rule>, next: &mut Vec<World>) {
        let has = |rule| without != Some(rule);
        let mut to = |stage: Asking, change: &dyn Fn(&mut World)| {
            let mut world = self.clone();
            change(&mut world);
            world.readers[number] = stage;
            next.push(world);
        };
        let unlocked = !self.locked[usize::from(X)];
        let current = self.versions[usize::from(X)];
        let marks = |version| {
            let holds = current == version && !self.is_about_to_change(X, without);
            Some((self.marks.0, self.marks.1, holds))
        };
        match self.readers[number] {
            Asking::Reads if unlocked => to(Asking::Asks(current), &|_| {}),
            Asking::Asks(version) if has(Rule::MarksFirst) => {
                to(Asking::Between(version, marks(version), None), &|_| {});
            }
            Asking::Asks(version) => {
                to(Asking::Between(version, None, Some(self.print.unwrap_or((9, 9)))), &|_| {});
            }
            Asking::Between(version, seen, print) => {
                let (count, ever, holds) = seen.or_else(|| marks(version)).expect("one of them");
                let print = print.or(self.print);
                let unmarked = count == 0 || !has(Rule::MarksCount);
                match unmarked && print == Some((X, version)) {
                    true => to(Asking::Done, &|world| world.lies |= !holds),
                    false if count == 0 => to(Asking::AsksCopies(version, (0, ever)), &|_| {}),
                    false => to(Asking::Done, &|_| {}),
                }
            }
            Asking::AsksCopies(version, seen) if unlocked => match current == version {
                true => to(Asking::Marks(version, seen), &|_| {}),
                false => to(Asking::Done, &|_| {}),
            },
            Asking::Marks(version, seen) => {
                let stage = match self.marks == seen || !has(Rule::FilledInIfUnmarked) {
                    true => Asking::Fills(version, self.marks.1 + 1),
                    false => Asking::Leaves,
                };
                to(stage, &World::mark);
            }
            Asking::Fills(version, ever) => {
                to(Asking::LooksAgain(ever), &|world| world.print = Some((X, version)));
            }
            Asking::LooksAgain(ever) => {
                let erases = self.marks.1 != ever && has(Rule::ErasedIfMarked);
                to(if erases { Asking::Erases } else { Asking::Leaves }, &|_| {});
            }
            Asking::Erases => to(Asking::Leaves, &|world| world.print = None),
            Asking::Leaves => to(Asking::Done, &|world| world.marks.0 -= 1),
            Asking::Reads | Asking::AsksCopies(..) | Asking::Done => {}
        }
        // Whoever fills in may die at any time.
        if matches!(
            self.readers[number],
            Asking::Fills(..) | Asking::LooksAgain(_) | Asking::Erases | Asking::Leaves
        ) {
            to(Asking::Done, &|_| {});
        }
    }
}

/// How many states there are, and whether the cache lies in one of them.
fn search(start: World, without: Option<Rule>) -> (usize, bool) {
    let mut known = HashSet::from([start.clone()]);
    let mut frontier = VecDeque::from([start]);
    while let Some(world) = frontier.pop_front() {
        if world.lies {
            return (known.len(), true);
        }
        for next in world.successors(without) {
            if known.insert(next.clone()) {
                frontier.push_back(next);
            }
        }
    }
    (known.len(), false)
}

/// Objects of writers, how many read, and what the place says first.
type Scene = (&'static [u8], usize, Option<(u8, u8)>);

const SCENES: [Scene; 4] = [
    (&[0, 0], 1, Some((0, 0))),
    (&[0, 0], 2, None),
    (&[0, 1], 2, Some((1, 0))),
    (&[0, 1, 0], 1, Some((0, 0))),
];

#[test]
fn with_all_rules_the_cache_does_not_lie() {
    for (objects, readers, print) in SCENES {
        let (states, lies) = search(World::new(objects, readers, print), None);
        println!("writers of {objects:?}, {readers} readers: {states} states");
        assert!(!lies && states > 1000);
    }
}

#[test]
fn every_rule_of_the_cache_prevents_a_lie() {
    for rule in RULES {
        let lies = |(objects, readers, print): &Scene| {
            search(World::new(objects, *readers, *print), Some(rule)).1
        };
        let scene = SCENES.iter().position(lies);
        println!("without {rule:?}: scene {scene:?}");
        assert!(scene.is_some(), "{rule:?} prevents nothing");
    }
}
