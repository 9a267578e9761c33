//! Transactions on two objects that keep their versions, with clocks that are uncertain.

use crate::rules::Rule;
use crate::search::Model;

/// Time ends here, with a few transactions or more: whoever still waits then waits for ever.
const END: u8 = 8;
const EARLY_END: u8 = 6;

const MOST_TXNS: usize = 3;

const OBJECTS: usize = 2;

/// What a transaction does, as sets of objects.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Plan {
    /// Only read.
    pub(crate) reads: u8,
    /// Read and written.
    pub(crate) writes: u8,
}

/// A version: its time, and whose it is. That of nobody is 0.
type Version = (u8, u8);

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Object {
    /// Who has it, and since when.
    lock: Option<(u8, u8)>,
    /// The oldest first.
    versions: [Version; MOST_TXNS],
    count: usize,
    /// The version cache knows that somebody is about to write it.
    marked: bool,
}

impl Object {
    fn versions(&self) -> &[Version] {
        &self.versions[..self.count]
    }

    fn newest(&self) -> Version {
        self.versions[self.count - 1]
    }

    fn push(&mut self, version: Version) {
        self.versions[self.count] = version;
        self.count += 1;
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd)]
enum At {
    Idle,
    /// Waits for its snapshot.
    Snapshot,
    Read(u8),
    /// Looks again at what it has read of an early snapshot.
    LookAgain(u8),
    Lock(u8),
    /// Has all locks, and tells the version cache, if there is one.
    Mark(u8),
    Time,
    Wait,
    Validate(u8),
    Install(u8),
    /// Waits until it may say so.
    Report,
    Release(u8),
    Committed,
    Aborted,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Txn {
    plan: Plan,
    at: At,
    snapshot: u8,
    /// It may be of before others have committed; this is not. 0: it is not early.
    late: u8,
    /// When it began to lock.
    since: u8,
    time: u8,
    /// What it has seen.
    seen: [Option<Version>; OBJECTS],
    /// Those that were over when it began.
    after: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct World {
    without: Option<Rule>,
    now: u8,
    end: u8,
    objects: [Object; OBJECTS],
    txns: [Txn; MOST_TXNS],
    count: usize,
    /// All share a version cache, and with it an order of commit times.
    shares: bool,
    /// The latest that was taken there.
    latest: u8,
}

fn has(set: u8, object: u8) -> bool {
    set >> object & 1 == 1
}

impl World {
    pub(crate) fn new(plans: &[Plan], without: Option<Rule>) -> Self {
        let txn = |plan: &Plan| Txn {
            plan: *plan,
            at: At::Idle,
            snapshot: 0,
            late: 0,
            since: 0,
            time: 0,
            seen: [None; OBJECTS],
            after: 0,
        };
        let object = Object { lock: None, versions: [(0, 0); MOST_TXNS], count: 1, marked: false };
        let mut txns = [txn(&Plan { reads: 0, writes: 0 }); MOST_TXNS];
        plans.iter().zip(&mut txns).for_each(|(plan, place)| *place = txn(plan));
        let (count, end) = (plans.len(), if plans.len() > 2 { EARLY_END } else { END });
        let (objects, shares, latest) = ([object; OBJECTS], false, 0);
        World { without, now: 1, end, objects, txns, count, shares, latest }
    }

    /// The same, where all share a version cache. There are more steps: time ends earlier.
    pub(crate) fn sharing(self) -> Self {
        World { shares: true, end: self.end - 2, ..self }
    }

    fn keeps(&self, rule: Rule) -> bool {
        self.without != Some(rule)
    }

    /// The transaction goes on to its next place.
    fn go(&self, who: usize, at: At) -> World {
        let mut next = *self;
        next.txns[who].at = at;
        if matches!(at, At::Committed | At::Aborted) {
            // All that matters of it from now on is what it has seen.
            (next.txns[who].snapshot, next.txns[who].late) = (0, 0);
            (next.txns[who].since, next.txns[who].time) = (0, 0);
        }
        if at == At::Aborted {
            let mine = |object: &&mut Object| object.lock.is_some_and(|lock| lock.0 == who as u8);
            next.objects.iter_mut().filter(mine).for_each(|object| {
                (object.lock, object.marked) = (None, false);
            });
        }
        next
    }

    /// Where it goes after having done something with an object: the next one of a set, or on.
    fn following(set: u8, object: Option<u8>, place: fn(u8) -> At, or: At) -> At {
        let first = object.map_or(0, |object| object + 1);
        (first..OBJECTS as u8).find(|object| has(set, *object)).map_or(or, place)
    }

    /// Locks are taken in another order than objects are read.
    fn next_lock(&self, plan: Plan, object: u8) -> At {
        let rest = match plan.writes {
            0 => At::Committed,
            _ if self.shares && self.keeps(Rule::MarkedBeforeItsTime) => {
                Self::following(plan.writes, None, At::Mark, At::Time)
            }
            _ => At::Time,
        };
        (0..object).rev().find(|object| has(plan.writes, *object)).map_or(rest, At::Lock)
    }

    /// All that a transaction may do next: with every time that may be now, where it looks at its clock.
    fn steps(&self, who: usize) -> Vec<World> {
        let Txn { plan, at, snapshot, since, time, .. } = self.txns[who];
        let (lowers, uppers) = ([self.now - 1, self.now], [self.now, self.now + 1]);
        // For certain.
        let past = |time: u8| self.now > time;
        match at {
            At::Idle if plan.reads != 0 => self.take_snapshot(who, uppers),
            At::Idle => {
                vec![self.begin(who).go(who, self.next_lock(plan, OBJECTS as u8))]
            }
            At::Snapshot if past(snapshot) || !self.keeps(Rule::SnapshotIsPast) => {
                let seen = |object: &u8| self.txns[who].seen[usize::from(*object)].is_some();
                let mut left =
                    (0..OBJECTS as u8).filter(|object| has(plan.reads, *object) && !seen(object));
                vec![self.go(who, left.next().map_or(At::Committed, At::Read))]
            }
            At::Read(object) => {
                self.read(who, object).into_iter().chain(self.begin_later(who, object)).collect()
            }
            At::LookAgain(object) => self.look_again(who, object).into_iter().collect(),
            At::Lock(object) if since == 0 => lowers
                .map(|lower| {
                    let mut next = *self;
                    next.txns[who].since = lower.max(1);
                    if !self.keeps(Rule::TimeAfterLocks) {
                        next.txns[who].time = self.now + 1;
                    }
                    next.lock(who, object)
                })
                .into(),
            At::Lock(object) => vec![self.lock(who, object)],
            At::Mark(object) => {
                let late = !self.keeps(Rule::MarkedBeforeItsTime);
                let then = if late { At::Wait } else { At::Time };
                let mut next =
                    self.go(who, Self::following(plan.writes, Some(object), At::Mark, then));
                next.objects[usize::from(object)].marked = true;
                vec![next]
            }
            At::Time => self.take_time(who),
            At::Wait => self.wait(who, past(time)).into_iter().collect(),
            At::Validate(object) => vec![self.validate(who, object)],
            At::Install(object) => {
                let mut next = self
                    .go(who, Self::following(plan.writes, Some(object), At::Install, At::Report));
                next.objects[usize::from(object)].push((time, who as u8 + 1));
                if next.txns[who].at == At::Report {
                    // The cache is told when all is written.
                    let written = (0..OBJECTS).filter(|object| has(plan.writes, *object as u8));
                    written.for_each(|object| next.objects[object].marked = false);
                }
                vec![next]
            }
            At::Report if past(time) || !self.keeps(Rule::ReportAfterTheWait) => {
                vec![self.go(who, Self::following(plan.writes, None, At::Release, At::Committed))]
            }
            At::Release(object) => {
                let mut next = self.go(
                    who,
                    Self::following(plan.writes, Some(object), At::Release, At::Committed),
                );
                next.objects[usize::from(object)].lock = None;
                vec![next]
            }
            At::Snapshot | At::Report | At::Committed | At::Aborted => Vec::new(),
        }
    }

    /// One that is of now, and is waited for, or an early one.
    fn take_snapshot(&self, who: usize, uppers: [u8; 2]) -> Vec<World> {
        let began = self.begin(who);
        let take = |upper| {
            let mut next = began.go(who, At::Snapshot);
            next.txns[who].snapshot = upper;
            next
        };
        // Of a moment that is past.
        let early = |(lower, upper): (u8, u8)| {
            let reads = self.txns[who].plan.reads;
            let first = Self::following(reads, None, At::Read, At::Committed);
            let mut next = began.go(who, first);
            (next.txns[who].snapshot, next.txns[who].late) = (lower - 1, upper);
            next
        };
        // As uncertain as can be, and not at all.
        let bounds = [(self.now - 1, self.now + 1), (self.now, self.now)];
        let bounds = bounds.into_iter().filter(|(lower, _)| *lower > 0);
        uppers.map(take).into_iter().chain(bounds.map(early)).collect()
    }

    fn take_time(&self, who: usize) -> Vec<World> {
        let Txn { plan, since, time, seen, .. } = self.txns[who];
        let newest = seen.iter().flatten().map(|version| version.0 + 1).max().unwrap_or(0);
        let marks = self.shares && !self.keeps(Rule::MarkedBeforeItsTime);
        let then = if marks { At::Mark } else { |_| At::Wait };
        let take = |upper: u8| {
            let mut next = self.go(who, Self::following(plan.writes, None, then, At::Wait));
            if time == 0 {
                let in_order = self.shares && self.keeps(Rule::TimesInOrder);
                let later = if in_order { self.latest + 1 } else { 0 };
                next.txns[who].time = upper.max(since + 1).max(newest).max(later);
                next.latest = next.txns[who].time.max(self.latest);
            }
            next
        };
        [self.now, self.now + 1].map(take).into()
    }

    /// `None`: it waits.
    fn wait(&self, who: usize, is_past: bool) -> Option<World> {
        let plan = self.txns[who].plan;
        let install = Self::following(plan.writes, None, At::Install, At::Report);
        if plan.reads == 0 || !self.keeps(Rule::Validation) {
            return Some(self.go(who, install));
        }
        let validate = Self::following(plan.reads, None, At::Validate, install);
        let may = is_past || self.shares || !self.keeps(Rule::ValidationAfterTheWait);
        may.then(|| self.go(who, validate))
    }

    fn begin(&self, who: usize) -> World {
        let mut next = *self;
        let over = |txn: &Txn| matches!(txn.at, At::Committed | At::Aborted);
        let all = self.txns[..self.count].iter().enumerate().filter(|(_, txn)| over(txn));
        next.txns[who].after = all.map(|(number, _)| 1 << number).sum();
        next
    }

    /// Whether something that an early reader has before it may have been committed before it began, and after its
    /// snapshot.
    fn is_doubtful(&self, who: usize, object: u8) -> bool {
        let Txn { snapshot, late, .. } = self.txns[who];
        let place = &self.objects[usize::from(object)];
        let before = |version: &&Version| version.0 <= late;
        let of_then = place.versions().iter().rev().find(before).is_some_and(|it| it.0 > snapshot);
        let may_be = place.lock.is_some_and(|lock| lock.1 < late) && place.newest().0 <= late;
        late != 0 && (of_then || may_be) && self.keeps(Rule::EarlyIsLate)
    }

    /// An early snapshot does not do: a later one, and what was read of the early one must be so there.
    fn is_late(&self, who: usize) -> World {
        let Txn { plan, late, seen, .. } = self.txns[who];
        let mut read = (0..OBJECTS as u8)
            .filter(|object| has(plan.reads, *object) && seen[usize::from(*object)].is_some());
        let again = read.next().filter(|_| self.keeps(Rule::EarlyIsLookedAtAgain));
        let mut next = self.go(who, again.map_or(At::Snapshot, At::LookAgain));
        (next.txns[who].snapshot, next.txns[who].late) = (late, 0);
        next
    }

    /// What it has read already (there are two at the most) as of the later snapshot; or else as of a moment before it was changed:
    /// also that is after all that was committed when it began. `None`: it waits.
    fn look_again(&self, who: usize, object: u8) -> Option<World> {
        let Txn { plan, snapshot, seen, .. } = self.txns[who];
        let place = &self.objects[usize::from(object)];
        let older = place.lock.is_some_and(|(_, since)| since < snapshot);
        if self.now <= snapshot || older && place.newest().0 <= snapshot {
            return None;
        }
        let fits = place.versions().iter().rev().find(|version| version.0 <= snapshot);
        if fits == seen[usize::from(object)].as_ref() {
            return Some(self.go(who, At::Snapshot));
        }
        if plan.writes != 0 {
            return Some(self.go(who, At::Aborted));
        }
        let mut next = *self;
        next.txns[who].snapshot = fits.map_or(0, |version| version.0 - 1);
        Some(next)
    }

    /// One who writes, has seen nothing yet, and finds something newer than its snapshot, may begin with the moment of that.
    fn begin_later(&self, who: usize, object: u8) -> Option<World> {
        let Txn { plan, snapshot, seen, .. } = self.txns[who];
        let newest = self.objects[usize::from(object)].newest();
        let may = plan.writes != 0 && newest.0 > snapshot && seen.iter().all(Option::is_none);
        may.then(|| {
            let mut next = self.go(who, At::Snapshot);
            (next.txns[who].snapshot, next.txns[who].late) = (newest.0, 0);
            next
        })
    }

    /// `None`: it waits.
    fn read(&self, who: usize, object: u8) -> Option<World> {
        if self.is_doubtful(who, object) {
            return Some(self.is_late(who));
        }
        let Txn { plan, snapshot, .. } = self.txns[who];
        let place = &self.objects[usize::from(object)];
        let newest = place.newest();
        let older = place.lock.is_some_and(|(_, since)| since < snapshot);
        if older && newest.0 <= snapshot && self.keeps(Rule::ReaderSeesLocks) {
            return None;
        }
        let fits = place.versions().iter().rev().find(|version| version.0 <= snapshot);
        let version = match fits {
            _ if !self.keeps(Rule::OldVersions) => newest,
            // A writer has no use for what is not the newest.
            Some(old) if *old != newest && plan.writes != 0 => {
                return Some(self.go(who, At::Aborted));
            }
            Some(version) => *version,
            None => return Some(self.go(who, At::Aborted)),
        };
        let after = Self::following(
            plan.reads,
            Some(object),
            At::Read,
            self.next_lock(plan, OBJECTS as u8),
        );
        let mut next = self.go(who, after);
        next.txns[who].seen[usize::from(object)] = Some(version);
        Some(next)
    }

    fn lock(&self, who: usize, object: u8) -> World {
        let Txn { plan, snapshot, since, .. } = self.txns[who];
        let place = &self.objects[usize::from(object)];
        let newest = place.newest();
        let too_new = plan.reads != 0 && newest.0 > snapshot;
        if place.lock.is_some() || too_new && self.keeps(Rule::LockReadOfTheSnapshot) {
            return self.go(who, At::Aborted);
        }
        let mut next = self.go(who, self.next_lock(plan, object));
        next.objects[usize::from(object)].lock = Some((who as u8, since));
        next.txns[who].seen[usize::from(object)] = Some(newest);
        next
    }

    fn validate(&self, who: usize, object: u8) -> World {
        let Txn { plan, seen, .. } = self.txns[who];
        let place = &self.objects[usize::from(object)];
        let same = seen[usize::from(object)] == Some(place.newest());
        // The cache knows what will be written, and nothing of locks.
        let is_taken = if self.shares { place.marked } else { place.lock.is_some() };
        if !same || is_taken && self.keeps(Rule::ValidationSeesLocks) {
            return self.go(who, At::Aborted);
        }
        let install = Self::following(plan.writes, None, At::Install, At::Report);
        self.go(who, Self::following(plan.reads, Some(object), At::Validate, install))
    }

    /// Whether an order of those that wrote explains all that was seen, by whom ever, and when.
    fn explains(&self, order: &[usize]) -> bool {
        let late = |(at, who): (usize, &usize)| {
            order[at + 1..].iter().any(|later| has(self.txns[*who].after, *later as u8))
        };
        if order.iter().enumerate().any(late) {
            return false;
        }
        // What was there before each of them, and in the end.
        let mut values = vec![[0; OBJECTS]];
        for who in order {
            let mut value = *values.last().expect("the first");
            let written =
                (0..OBJECTS).filter(|object| has(self.txns[*who].plan.writes, *object as u8));
            written.for_each(|object| value[object] = *who as u8 + 1);
            values.push(value);
        }
        let sees = |who: usize, value: &[u8; OBJECTS]| {
            let seen = self.txns[who].seen.iter().zip(value);
            seen.into_iter().all(|(seen, value)| seen.is_none_or(|seen| seen.1 == *value))
        };
        (0..self.count).all(|who| match order.iter().position(|other| *other == who) {
            Some(at) => sees(who, &values[at]),
            // Of a moment after all that were over when it began, and before all that began when it was over.
            None => {
                let after = |other: &usize| has(self.txns[who].after, *other as u8);
                let before = |other: &usize| has(self.txns[*other].after, who as u8);
                let first = order.iter().rposition(after).map_or(0, |at| at + 1);
                let last = order.iter().position(before).unwrap_or(order.len());
                (first..=last).any(|at| sees(who, &values[at]))
            }
        })
    }
}

impl Model for World {
    fn next(&self, each: &mut dyn FnMut(Self)) {
        for who in 0..self.count {
            self.steps(who).into_iter().for_each(&mut *each);
        }
        if self.now < self.end {
            each(World { now: self.now + 1, ..*self });
        }
    }

    fn wrong(&self) -> Option<String> {
        let wrote = |txn: &Txn| {
            matches!(txn.at, At::Install(_) | At::Report | At::Release(_) | At::Committed)
                && txn.plan.writes != 0
        };
        let wrote: Vec<usize> = (0..self.count).filter(|who| wrote(&self.txns[*who])).collect();
        let orders: Vec<Vec<usize>> = match wrote[..] {
            [] => vec![vec![]],
            [one] => vec![vec![one]],
            [one, other] => vec![vec![one, other], vec![other, one]],
            _ => unreachable!("no scene has more writers"),
        };
        let explained = orders.iter().any(|order| self.explains(order));
        (!explained).then(|| format!("no order explains {:?}", &self.txns[..self.count]))
    }

    fn step_from(&self, before: &Self) -> String {
        let moved = (0..self.count).find(|who| self.txns[*who] != before.txns[*who]);
        moved.map_or(format!("it is {}", self.now), |who| {
            let Txn { at, snapshot, time, .. } = self.txns[who];
            format!("{who}: {at:?}, snapshot {snapshot}, time {time}")
        })
    }
}
