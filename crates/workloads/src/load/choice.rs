//! The workloads by their names, with the sizes and shapes that the papers vary.

use super::{Counter, Kvs, ListAppend, MOST_SKEW, MultiGet, SmallBank, Tatp, Transfer, Workload};

/// A workload, by its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Keys and values.
    Kvs,
    /// Savings and checking accounts.
    SmallBank,
    /// Telephone subscribers.
    Tatp,
    /// Lists, for histories.
    ListAppend,
    /// Counters, for runs with faults.
    Counter,
    /// Transfers, for runs with faults.
    Transfer,
    /// Long reads against updates.
    MultiGet,
}

/// Size and shape of a workload, where it has them. What is not given is as the papers have it.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Shape {
    /// Keys, lists or counters.
    pub keys: Option<u64>,
    /// Bytes of a value.
    pub value_size: Option<usize>,
    /// How uneven keys are chosen: 0 evenly, 0.99 as usual.
    pub skew: Option<f64>,
    /// How many of a hundred only read: transactions, or accesses where a transaction has both.
    pub read_share: Option<u64>,
    /// How many of a hundred objects a transaction only reads that writes others.
    pub mixed: Option<u64>,
    /// Objects of a transaction.
    pub objects: Option<usize>,
    /// Accounts.
    pub accounts: Option<u64>,
    /// Subscribers.
    pub subscribers: Option<u64>,
    /// Threads: where sizes grow with them.
    pub threads: u64,
}

/// Something to do with a workload, whichever it is.
pub trait Visit {
    /// What comes of it.
    type Output;

    /// Does it.
    fn visit<W: Workload + Send + 'static>(self, workload: W) -> Self::Output;
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 7] = [
        Kind::Kvs,
        Kind::SmallBank,
        Kind::Tatp,
        Kind::ListAppend,
        Kind::Counter,
        Kind::Transfer,
        Kind::MultiGet,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Kvs => "kvs",
            Kind::SmallBank => "smallbank",
            Kind::Tatp => "tatp",
            Kind::ListAppend => "list-append",
            Kind::Counter => "counter",
            Kind::Transfer => "transfer",
            Kind::MultiGet => "multi-get",
        }
    }

    /// What it is, in a few words.
    pub fn about(self) -> &'static str {
        match self {
            Kind::Kvs => "Keys and values: half of the transactions only read, the others write",
            Kind::SmallBank => {
                "Savings and checking accounts, 4 % of them take 90 % of the accesses"
            }
            Kind::Tatp => "Telephone subscribers, four of five transactions only read",
            Kind::ListAppend => {
                "Lists that are read and appended to: their histories tell everything"
            }
            Kind::Counter => "Counters that are counted up",
            Kind::Transfer => "Transfers between accounts",
            Kind::MultiGet => "Long reads, and updates of single rows: as many rows each",
        }
    }

    /// A shape so small that transactions meet.
    pub fn small(self) -> Shape {
        let mut shape = Shape { threads: 4, ..Shape::default() };
        match self {
            Kind::Kvs => (shape.keys, shape.mixed) = (Some(50), Some(50)),
            Kind::MultiGet => (shape.keys, shape.objects) = (Some(50), Some(20)),
            Kind::SmallBank | Kind::Transfer => shape.accounts = Some(40),
            Kind::Tatp => shape.subscribers = Some(20),
            Kind::ListAppend | Kind::Counter => shape.keys = Some(8),
        }
        shape
    }

    /// The shape for simulations: as the papers have it, but no larger than a run has use for.
    pub fn simulated(self) -> Shape {
        let mut shape = Shape { threads: 4, ..Shape::default() };
        match self {
            Kind::Kvs => (shape.keys, shape.mixed) = (Some(2000), Some(50)),
            Kind::MultiGet => shape.keys = Some(2000),
            Kind::SmallBank => shape.accounts = Some(1000),
            Kind::Tatp => shape.subscribers = Some(100),
            Kind::Transfer | Kind::ListAppend | Kind::Counter => {}
        }
        shape
    }

    /// The options that shape it.
    pub fn options(self) -> &'static [&'static str] {
        match self {
            Kind::Kvs => &["keys", "value-size", "skew", "read-share", "mixed", "objects"],
            Kind::SmallBank | Kind::Transfer => &["accounts"],
            Kind::Tatp => &["subscribers"],
            Kind::ListAppend => &["keys", "read-share", "objects"],
            Kind::Counter => &["keys"],
            Kind::MultiGet => &["keys", "value-size", "objects"],
        }
    }

    /// Makes it, and does something with it; or says what is wrong with its shape.
    pub fn visit<V: Visit>(self, shape: &Shape, visit: V) -> Result<V::Output, String> {
        self.check(shape)?;
        let threads = shape.threads.max(1);
        let keys = |usual: u64| shape.keys.unwrap_or(usual);
        let read_share = |usual: u64| shape.read_share.unwrap_or(usual);
        Ok(match self {
            Kind::Kvs => {
                let kvs = Kvs::new(
                    keys(1_000_000),
                    shape.value_size.unwrap_or(40),
                    shape.skew.unwrap_or(0.99),
                    read_share(50),
                    shape.objects.unwrap_or(4),
                );
                visit.visit(kvs.mixing(shape.mixed.unwrap_or(0)))
            }
            Kind::SmallBank => {
                visit.visit(SmallBank::new(shape.accounts.unwrap_or(100_000 * threads)))
            }
            Kind::Tatp => visit.visit(Tatp::new(shape.subscribers.unwrap_or(100_000))),
            Kind::ListAppend => visit.visit(ListAppend::new(
                keys(64),
                shape.objects.unwrap_or(4) as u64,
                read_share(50),
            )),
            Kind::Counter => visit.visit(Counter::new(keys(16))),
            Kind::Transfer => visit.visit(Transfer::new(shape.accounts.unwrap_or(1000))),
            Kind::MultiGet => visit.visit(MultiGet::new(
                keys(1_000_000),
                shape.value_size.unwrap_or(40),
                shape.objects.unwrap_or(100) as u64,
            )),
        })
    }

    fn check(self, shape: &Shape) -> Result<(), String> {
        let given = [
            ("keys", shape.keys.is_some()),
            ("value-size", shape.value_size.is_some()),
            ("skew", shape.skew.is_some()),
            ("read-share", shape.read_share.is_some()),
            ("mixed", shape.mixed.is_some()),
            ("objects", shape.objects.is_some()),
            ("accounts", shape.accounts.is_some()),
            ("subscribers", shape.subscribers.is_some()),
        ];
        for (option, _) in given.iter().filter(|(_, given)| *given) {
            if !self.options().contains(option) {
                let (name, all) = (self.name(), self.options().join(", --"));
                return Err(format!("--{option}: {name} has no such thing; it has --{all}"));
            }
        }
        let keys = shape.keys.unwrap_or(1_000_000);
        if shape.value_size.is_some_and(|bytes| !(8..=1 << 20).contains(&bytes)) {
            Err("--value-size: expected 8 to 1048576 bytes".into())
        } else if shape.skew.is_some_and(|skew| !(0.0..=MOST_SKEW).contains(&skew)) {
            Err("--skew: expected 0 (even) to 10".into())
        } else if shape.read_share.is_some_and(|share| share > 100) {
            Err("--read-share: expected 0 to 100, of a hundred".into())
        } else if shape.mixed.is_some_and(|share| share > 100) {
            Err("--mixed: expected 0 to 100, of a hundred".into())
        } else if shape.objects.is_some_and(|objects| objects == 0 || objects as u64 > keys) {
            Err("--objects: expected at least 1, and no more than there are keys".into())
        } else if [shape.keys, shape.accounts, shape.subscribers].contains(&Some(0)) {
            Err("--keys, --accounts, --subscribers: expected at least 1".into())
        } else {
            Ok(())
        }
    }
}
