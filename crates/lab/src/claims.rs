//! What the papers claim: facts and figures, as data (`claims.toml`), never edited to fit.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

/// A figure of a paper.
#[derive(Clone, Debug, Deserialize)]
pub struct Claim {
    /// What it is called.
    pub id: String,
    /// Which paper.
    pub paper: String,
    /// Where in it.
    #[serde(rename = "where")]
    pub place: String,
    /// The experiment that shows it.
    pub experiment: String,
    /// Its unit: ratio, percent, count, latency_us, duration_ms, rate_mops, bytes, parameter.
    pub kind: String,
    /// In words.
    pub what: String,
    /// The figure.
    pub expected: f64,
    /// How it is compared.
    pub relation: Relation,
    /// How far it may be missed.
    pub tolerance: f64,
    /// In which set-up.
    pub workload: String,
    /// A figure of the hardware, by which a profile may be tuned.
    pub calibration: bool,
}

/// How a figure is compared with what was measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
pub enum Relation {
    /// At least.
    #[serde(rename = ">=")]
    AtLeast,
    /// At most.
    #[serde(rename = "<=")]
    AtMost,
    /// About.
    #[serde(rename = "~")]
    About,
    /// Never: a fact of the set-up.
    #[serde(rename = "param")]
    Parameter,
}

impl Relation {
    /// As it is written.
    pub fn sign(self) -> &'static str {
        match self {
            Relation::AtLeast => "≥",
            Relation::AtMost => "≤",
            Relation::About => "≈",
            Relation::Parameter => "=",
        }
    }
}

impl Claim {
    /// Whether it holds for what was measured; `None` if it is never compared.
    pub fn holds(&self, measured: f64) -> Option<bool> {
        let Claim { expected, tolerance, .. } = *self;
        match self.relation {
            Relation::AtLeast => Some(measured >= expected * (1.0 - tolerance)),
            Relation::AtMost => Some(measured <= expected * (1.0 + tolerance)),
            Relation::About if expected == 0.0 => Some(measured.abs() <= tolerance),
            Relation::About => Some((measured - expected).abs() <= tolerance * expected.abs()),
            Relation::Parameter => None,
        }
    }
}

#[derive(Deserialize)]
struct File {
    claim: Vec<Claim>,
}

static CLAIMS: LazyLock<BTreeMap<String, Claim>> = LazyLock::new(|| {
    let file: File = toml::from_str(include_str!("../claims.toml")).expect("a test reads it");
    file.claim.into_iter().map(|claim| (claim.id.clone(), claim)).collect()
});

/// A claim by its name.
pub fn claim(id: &str) -> Option<&'static Claim> {
    CLAIMS.get(id)
}

/// All of them.
pub fn all() -> impl Iterator<Item = &'static Claim> {
    CLAIMS.values()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claimed(relation: Relation, expected: f64, tolerance: f64) -> Claim {
        Claim { relation, expected, tolerance, ..claim("ford-fig9-farm-rw").unwrap().clone() }
    }

    #[test]
    fn all_claims_are_read() {
        assert_eq!(all().count(), 985);
        assert!(all().any(|claim| claim.calibration));
    }

    #[test]
    fn tolerances_are_as_the_file_says() {
        use Relation::{About, AtLeast, AtMost, Parameter};
        let holds = |relation, expected, tolerance, measured| {
            claimed(relation, expected, tolerance).holds(measured)
        };
        assert_eq!(holds(AtLeast, 2.0, 0.1, 1.8), Some(true));
        assert_eq!(holds(AtLeast, 2.0, 0.1, 1.79), Some(false));
        assert_eq!(holds(AtMost, 8.0, 0.0, 8.0), Some(true));
        assert_eq!(holds(AtMost, 8.0, 0.0, 8.01), Some(false));
        assert_eq!(holds(About, 5.0, 0.0, 5.0), Some(true));
        assert_eq!(holds(About, 5.0, 0.2, 6.1), Some(false));
        assert_eq!(holds(About, 0.0, 0.5, -0.4), Some(true));
        assert_eq!(holds(Parameter, 1.0, 0.0, 1.0), None);
    }
}
