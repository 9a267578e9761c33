//! What the transactions of a workload touch, beside what the paper says of them.

use std::collections::BTreeMap;

use farside_workloads::census::{self, Touched, census};
use farside_workloads::engine::Table;
use farside_workloads::load::{Kind, Shape, Visit, Workload};
use serde::Deserialize;

use crate::Experiment;
use crate::claims::claim;
use crate::verdict::{Verdict, verdict};

/// Counts. The claims are those of the experiment whose names fit: `-KIND-share`, `-KIND-TABLE-reads`, and `-TABLE-updates` of a hundred
/// transactions.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Census {
    /// Whose transactions.
    pub workload: String,
    /// How many.
    pub transactions: u64,
    /// Accounts, where there are some.
    #[serde(default)]
    pub accounts: Option<u64>,
    /// What the claims call its tables.
    pub tables: BTreeMap<String, u16>,
    /// Which of two nodes has the primaries of a table; the other one has the backups.
    #[serde(default)]
    pub homes: BTreeMap<String, String>,
}

struct Count(u64, u64);

impl Visit for Count {
    type Output = Result<Vec<census::Kind>, String>;

    fn visit<W: Workload + Send + 'static>(self, workload: W) -> Self::Output {
        census(&workload, self.0, self.1).map_err(|failure| failure.to_string())
    }
}

impl Census {
    pub(crate) fn kind(&self) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.name() == self.workload)
    }

    /// All figures, by the ends of their names.
    fn figures(&self, seed: u64) -> Result<Vec<(String, f64)>, String> {
        let kind = self.kind().ok_or("no such workload")?;
        let kinds = kind.visit(
            &Shape { accounts: self.accounts, ..Shape::default() },
            Count(self.transactions, seed),
        )??;
        let mut all = Vec::new();
        for kind in &kinds {
            let share = 100.0 * kind.transactions as f64 / self.transactions as f64;
            all.push((format!("{}-share", kind.name), share));
            for (name, number) in &self.tables {
                let Touched { reads, updates } =
                    kind.touched.get(&Table(*number)).copied().unwrap_or_default();
                for (what, rows) in [("reads", reads), ("updates", updates)] {
                    let each = rows as f64 / kind.transactions.max(1) as f64;
                    all.push((format!("{}-{name}-{what}", kind.name), each));
                }
            }
        }
        for (name, number) in &self.tables {
            let of = |what: fn(&Touched) -> u64| {
                let touched = kinds.iter().filter_map(|kind| kind.touched.get(&Table(*number)));
                100.0 * touched.map(what).sum::<u64>() as f64 / self.transactions as f64
            };
            all.push((format!("{name}-reads"), of(|touched| touched.reads)));
            all.push((format!("{name}-updates"), of(|touched| touched.updates)));
        }
        all.extend(self.loads(&all));
        Ok(all)
    }

    /// Requests at each node, of a hundred transactions: with reads from primaries only, and where the backups of what the busier node
    /// has are read.
    fn loads(&self, figures: &[(String, f64)]) -> Vec<(String, f64)> {
        let of = |table: &str, what: &str| {
            let name = format!("{table}-{what}");
            figures.iter().find(|(known, _)| *known == name).map_or(0.0, |(_, figure)| *figure)
        };
        let mut primaries: BTreeMap<&str, f64> = BTreeMap::new();
        for (table, node) in &self.homes {
            *primaries.entry(node).or_default() += of(table, "reads") + of(table, "updates");
        }
        let by_load = |(_, one): &(&&str, &f64), (_, other): &(&&str, &f64)| one.total_cmp(other);
        let (Some((busy, most)), Some((idle, least))) =
            (primaries.iter().max_by(by_load), primaries.iter().min_by(by_load))
        else {
            return Vec::new();
        };
        let moved = self.homes.iter().filter(|(_, node)| node == busy);
        let moved: f64 = moved.map(|(table, _)| of(table, "reads")).sum();
        let mut loads = vec![
            ("imbalance-primary-only".to_owned(), most / least),
            ("imbalance-read-backups".to_owned(), (most - moved) / (least + moved)),
            (format!("{busy}-load-read-backups"), most - moved),
            (format!("{idle}-load-read-backups"), least + moved),
        ];
        loads.extend(
            primaries.iter().map(|(node, load)| (format!("{node}-load-primary-only"), *load)),
        );
        loads
    }
}

impl Experiment {
    pub(crate) fn run_census(&self, census: &Census) -> Result<Vec<Verdict>, String> {
        let mut verdicts = Vec::new();
        for (end, figure) in census.figures(self.seed)? {
            let id = format!("{}-{end}", self.id);
            if claim(&id).is_some() {
                verdicts.push(verdict(&id, Some(figure), &self.why)?);
            }
        }
        Ok(verdicts)
    }
}
