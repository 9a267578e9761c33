//! What a process knows of the pool, for all its threads: the configuration, and whether it may act.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use farside_fabric::{Time, probe};

use crate::config::Config;
use crate::petition::Petition;
use crate::time::PoolTime;

/// The pool as one client process sees it.
#[derive(Debug)]
pub struct View {
    config: Mutex<Arc<Config>>,
    epoch: AtomicU64,
    /// Since which epoch the regions are where they are now.
    placed: AtomicU64,
    counting: AtomicU64,
    /// Until when there is a lease.
    valid_until: AtomicU64,
    put_out: AtomicBool,
    /// For each thread the oldest placement that it acts by, or [`IDLE`].
    seats: Mutex<Vec<Arc<Oldest>>>,
    /// The newest configuration that could be acknowledged.
    settled: AtomicU64,
    /// What threads ask the manager for.
    wishes: Mutex<Vec<Petition>>,
    time: PoolTime,
    /// There is a manager, and nodes have several lives.
    managed: bool,
}

/// The oldest placement that a thread acts by, in a line of its own.
#[derive(Debug)]
#[repr(align(128))]
struct Oldest(AtomicU64);

/// Until when who is alone has a lease.
const FOR_EVER: u64 = u64::MAX;

/// A configuration as a thread knows it, counted by that thread alone: threads would share the count of an `Arc`, for each
/// transaction.
#[derive(Debug)]
struct Known(Arc<Config>);

impl std::ops::Deref for Known {
    type Target = Arc<Config>;

    fn deref(&self) -> &Arc<Config> {
        &self.0
    }
}

/// A thread that holds no permit.
const IDLE: u64 = u64::MAX;

/// A thread's place in the view of its process.
#[derive(Clone, Debug)]
pub struct Seat(Rc<Held>);

#[derive(Debug)]
struct Held {
    view: Arc<View>,
    oldest: Arc<Oldest>,
    /// How many permits there are of each placement, the oldest first.
    permits: RefCell<VecDeque<(u64, usize)>>,
    config: RefCell<Rc<Known>>,
}

/// Leave to act by a configuration, as long as the lease lasts and the regions stay where they are. While
/// there is one of an older placement, the session does not acknowledge a newer configuration: whoever
/// holds it has verbs on their way, and drops it when they have completed, or can have no effect any
/// more.
#[derive(Debug)]
pub struct Permit {
    seat: Rc<Held>,
    placed: u64,
    config: Arc<Config>,
}

/// Leave to act by a configuration that keeps nobody from acknowledging the next one: for whoever looks whether it is
/// valid before it believes a completion, and whose verbs do no harm if they take effect late.
#[derive(Clone, Debug)]
pub struct Leave {
    seat: Rc<Held>,
    placed: u64,
    config: Rc<Known>,
}

impl View {
    pub(crate) fn new(config: Config) -> Self {
        View {
            epoch: AtomicU64::new(config.epoch),
            placed: AtomicU64::new(config.epoch),
            counting: AtomicU64::new(0),
            valid_until: AtomicU64::new(0),
            put_out: AtomicBool::new(false),
            seats: Mutex::default(),
            settled: AtomicU64::new(config.epoch),
            wishes: Mutex::default(),
            time: PoolTime::default(),
            managed: true,
            config: Mutex::new(Arc::new(config)),
        }
    }

    /// Of a pool that has no members but this process: its configuration counts, and never changes.
    pub fn alone(config: Config) -> Arc<Self> {
        let view = View { managed: false, ..Self::new(config) };
        view.counts(view.epoch());
        view.extend(Time(FOR_EVER));
        Arc::new(view)
    }

    /// The newest configuration that this process knows.
    pub fn config(&self) -> Arc<Config> {
        Arc::clone(&self.config.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What is known of the pool's time.
    pub fn time(&self) -> &PoolTime {
        &self.time
    }

    /// Whether somebody manages the pool.
    pub(crate) fn has_manager(&self) -> bool {
        self.managed
    }

    /// Its epoch.
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Asks the manager for something. Nobody answers: whoever asks looks at what becomes of it, and asks again.
    pub fn wish(&self, petition: Petition) {
        let mut wishes = self.wishes.lock().unwrap_or_else(PoisonError::into_inner);
        if !wishes.contains(&petition) {
            wishes.push(petition);
        }
    }

    pub(crate) fn take_wishes(&self) -> Vec<Petition> {
        std::mem::take(&mut *self.wishes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A place for a thread of this process.
    pub fn seat(self: &Arc<Self>) -> Seat {
        let oldest = Arc::new(Oldest(AtomicU64::new(IDLE)));
        self.seats().push(Arc::clone(&oldest));
        let config = RefCell::new(Rc::new(Known(self.config())));
        Seat(Rc::new(Held { view: Arc::clone(self), oldest, permits: RefCell::default(), config }))
    }

    fn seats(&self) -> MutexGuard<'_, Vec<Arc<Oldest>>> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a permit would be given now: the configuration that is known counts, and there is a lease.
    pub fn may_act(&self, now: Time) -> bool {
        self.acts_by(now).is_some()
    }

    /// Since which epoch the regions are where this process may act on them now, if it may.
    pub fn acts_by(&self, now: Time) -> Option<u64> {
        let placed = self.placed.load(Ordering::Acquire);
        let may = self.counting.load(Ordering::Acquire) >= placed && self.has_lease(now);
        may.then_some(placed)
    }

    /// Whether there is a lease.
    pub fn has_lease(&self, now: Time) -> bool {
        !self.is_put_out() && now.0 < self.valid_until.load(Ordering::Acquire)
    }

    /// The same; where a lease never ends nobody looks at the clock.
    #[inline]
    fn has_lease_by(&self, now: impl FnOnce() -> Time) -> bool {
        let until = self.valid_until.load(Ordering::Acquire);
        !self.is_put_out() && (until == FOR_EVER || now().0 < until)
    }

    /// Whether this process is no member any more: it must end, and may come back under a new id.
    pub fn is_put_out(&self) -> bool {
        self.put_out.load(Ordering::Acquire)
    }

    pub(crate) fn extend(&self, until: Time) {
        self.valid_until.fetch_max(until.0, Ordering::AcqRel);
    }

    pub(crate) fn valid_until(&self) -> Time {
        Time(self.valid_until.load(Ordering::Acquire))
    }

    pub(crate) fn counts(&self, epoch: u64) {
        self.counting.fetch_max(epoch, Ordering::AcqRel);
    }

    pub(crate) fn put_out(&self) {
        self.put_out.store(true, Ordering::Release);
    }

    /// Takes over a newer configuration. From now on permits of other placements are void.
    pub(crate) fn learn(&self, config: Config) {
        let mut known = self.config.lock().unwrap_or_else(PoisonError::into_inner);
        if config.epoch <= known.epoch {
            return;
        }
        if !known.is_placed_like(&config) || known.epoch + 1 != config.epoch {
            // In one order with what seats say: either the permit is seen by whoever acknowledges, or the
            // new placement by whoever asks for a permit.
            self.placed.store(config.epoch, Ordering::SeqCst);
        }
        if known.master != config.master {
            // Before it is acknowledged: nobody gives out times of an old master then.
            self.time.disable();
        }
        self.epoch.store(config.epoch, Ordering::Release);
        *known = Arc::new(config);
    }

    /// The newest configuration by which, or by one with the same placement, all threads act.
    pub(crate) fn settled(&self) -> u64 {
        let (epoch, placed) = (self.epoch(), self.placed.load(Ordering::SeqCst));
        if self.seats().iter().all(|oldest| oldest.0.load(Ordering::SeqCst) >= placed) {
            self.settled.fetch_max(epoch, Ordering::AcqRel);
        } else {
            probe!("an acknowledgement waits for those who act by an older configuration");
        }
        self.settled.load(Ordering::Acquire)
    }
}

impl Seat {
    /// Leave to post verbs by the configuration that is known, if that counts and there is a lease.
    pub fn permit(&self, now: Time) -> Option<Permit> {
        let Held { view, permits, config, .. } = &*self.0;
        loop {
            let placed = view.placed.load(Ordering::Acquire);
            if view.counting.load(Ordering::Acquire) < placed || !view.has_lease(now) {
                return None;
            }
            let mut known = permits.borrow_mut();
            match known.back_mut().filter(|(newest, _)| *newest == placed) {
                Some((_, count)) => *count += 1,
                None => known.push_back((placed, 1)),
            }
            drop(known);
            self.0.tell();
            if config.borrow().epoch != view.epoch() {
                *config.borrow_mut() = Rc::new(Known(view.config()));
            }
            let config = Arc::clone(&**config.borrow());
            let permit = Permit { seat: Rc::clone(&self.0), placed, config };
            if view.placed.load(Ordering::SeqCst) == placed {
                return Some(permit);
            }
        }
    }

    /// Leave to act by the configuration that is known, if that counts and there is a lease; see there.
    #[inline]
    pub fn leave(&self, now: impl FnOnce() -> Time) -> Option<Leave> {
        let Held { view, config, .. } = &*self.0;
        // The placement first: the configuration is not older then.
        let placed = view.placed.load(Ordering::Acquire);
        if view.counting.load(Ordering::Acquire) < placed || !view.has_lease_by(now) {
            return None;
        }
        if config.borrow().epoch != view.epoch() {
            *config.borrow_mut() = Rc::new(Known(view.config()));
        }
        Some(Leave { seat: Rc::clone(&self.0), placed, config: Rc::clone(&config.borrow()) })
    }

    /// Whether somebody here has a permit: others wait for what it does.
    pub fn is_acting(&self) -> bool {
        !self.0.permits.borrow().is_empty()
    }

    /// The view that this is a place in.
    pub fn view(&self) -> &Arc<View> {
        &self.0.view
    }
}

impl Held {
    /// Says which is the oldest placement in use.
    fn tell(&self) {
        let oldest = self.permits.borrow().front().map_or(IDLE, |(placed, _)| *placed);
        if self.oldest.0.load(Ordering::Relaxed) != oldest {
            self.oldest.0.store(oldest, Ordering::SeqCst);
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.view.seats().retain(|oldest| !Arc::ptr_eq(oldest, &self.oldest));
    }
}

impl Permit {
    /// What to act by.
    pub fn config(&self) -> &Arc<Config> {
        &self.config
    }

    /// Whether a completion may be believed: there still is a lease, and all regions are where they were
    /// when the permit was given.
    pub fn is_valid(&self, now: Time) -> bool {
        let view = &self.seat.view;
        view.placed.load(Ordering::Acquire) == self.placed && view.has_lease(now)
    }
}

impl Leave {
    /// What to act by.
    #[inline]
    pub fn config(&self) -> &Arc<Config> {
        &self.config
    }

    /// Whether a completion may be believed: there still is a lease, and all regions are where they were.
    #[inline]
    pub fn is_valid(&self, now: impl FnOnce() -> Time) -> bool {
        let view = &self.seat.view;
        view.placed.load(Ordering::Acquire) == self.placed && view.has_lease_by(now)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut permits = self.seat.permits.borrow_mut();
        if let Some(at) = permits.iter().position(|(placed, _)| *placed == self.placed) {
            permits[at].1 -= 1;
            if permits[at].1 == 0 {
                permits.remove(at);
            }
        }
        drop(permits);
        self.seat.tell();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farside_fabric::ClientId;

    /// A verb that was posted to the old primary, and had not completed, took effect after its client had
    /// acknowledged the new one.
    #[test]
    fn permits_of_an_older_placement_keep_a_session_from_acknowledging() {
        let first = Config::first(ClientId(7), std::time::Duration::from_millis(10));
        let view = Arc::new(View::new(first.clone()));
        let (here, there) = (view.seat(), view.seat());
        assert!(here.permit(Time(1)).is_none(), "nothing counts yet");
        view.counts(1);
        view.extend(Time(1000));
        let (one, two) = (here.permit(Time(1)).unwrap(), there.permit(Time(1)).unwrap());
        let mut moved = first.next();
        moved.regions = vec![crate::Region {
            id: 0,
            bytes: 8,
            replicas: Vec::new(),
            joining: Vec::new(),
            copies: 1,
        }];
        view.learn(moved.clone());
        assert!(!one.is_valid(Time(2)) && view.settled() == 1);
        view.counts(2);
        let new = here.permit(Time(2)).unwrap();
        assert!(new.is_valid(Time(2)) && !new.is_valid(Time(1000)));
        assert_eq!((new.config().epoch, one.config().epoch), (2, 1));
        drop(one);
        assert_eq!(view.settled(), 1, "another thread has one");
        drop(two);
        assert_eq!(view.settled(), 2);
        // A change that moves nothing waits for nobody.
        view.learn(moved.next());
        assert!(new.is_valid(Time(2)) && view.settled() == 3);
        drop((here, there, new));
        assert!(view.seats().is_empty());
    }
}
