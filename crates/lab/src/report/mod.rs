//! One page with all experiments: plots as SVG, claims beside what was measured, and the command behind each.

mod page;
mod plot;

use crate::Experiment;
use crate::run::Outcome;

/// The page, with nothing outside of it.
pub fn page(found: &[(Experiment, Outcome)], quick: bool) -> String {
    page::page(found, quick)
}

/// As it can stand in a page.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A figure with a few digits.
fn digits(value: f64) -> String {
    match value.abs() {
        _ if !value.is_finite() => "–".into(),
        size if size >= 1e5 => format!("{:.2} M", value / 1e6),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ if value.fract() == 0.0 => format!("{value:.0}"),
        _ => format!("{value:.2}"),
    }
}
