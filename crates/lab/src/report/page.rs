//! The page around the plots.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::{digits, escape, plot};
use crate::Experiment;
use crate::experiment::Plot;
use crate::run::{Curve, Outcome, Series};
use crate::verdict::Verdict;

const STYLE: &str = include_str!("page.css");

pub(super) fn page(found: &[(Experiment, Outcome)], quick: bool) -> String {
    let claims = || found.iter().flat_map(|(_, outcome)| &outcome.claims);
    let (all, hold) = (claims().count(), claims().filter(|claim| claim.holds).count());
    let mut html = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>Farside: the laboratory</title><style>{STYLE}</style></head><body><main>\
         <h1>The laboratory</h1>\
         <p>Figures of the papers, drawn again. All values are <em>simulated</em>: times are virtual, and hardware is a profile of \
         <code>farside bench --fabric sim:PROFILE</code>. {hold} of {all} claims hold within their tolerance.{}</p><nav><ul>",
        if quick { " Runs were short (<code>--quick</code>)." } else { "" }
    );
    for (experiment, outcome) in found {
        let hold = outcome.claims.iter().filter(|claim| claim.holds).count();
        let score = match outcome.claims.len() {
            0 => "no claims".into(),
            all => format!("{hold} of {all}"),
        };
        _ = write!(
            html,
            "<li><a href=\"#{0}\">{0}</a> {1} <small>{score}</small></li>",
            escape(&experiment.id),
            escape(&experiment.title)
        );
    }
    html.push_str("</ul></nav>");
    found.iter().for_each(|(experiment, outcome)| section(&mut html, experiment, outcome, quick));
    html.push_str("</main></body></html>\n");
    html
}

fn section(html: &mut String, experiment: &Experiment, outcome: &Outcome, quick: bool) {
    _ = write!(
        html,
        "<section id=\"{0}\"><h2>{1} <small>{0}</small></h2><p>{2}</p>",
        escape(&experiment.id),
        escape(&experiment.title),
        escape(&experiment.about)
    );
    let seed = outcome.seed;
    let mut figure = |drawing: String, of: &str, profile: &str| {
        let (of, profile) = (escape(of), escape(profile));
        _ = write!(
            html,
            "<figure>{drawing}<figcaption>{of} (<em>simulated</em>, {profile}, seed {seed})</figcaption></figure>"
        );
    };
    if let Some(runs) = &experiment.runs {
        for work in &runs.workloads {
            let series: Vec<&Series> =
                outcome.series.iter().filter(|it| it.workload == work.name).collect();
            let profile = work.profile.as_ref().unwrap_or(&outcome.profile);
            figure(plot::draw(runs.plot, &series), &work.name, profile);
            if runs.plot == Plot::ThroughputLatency {
                let name = format!("{}: latencies at the largest load", work.name);
                figure(plot::distribution(&series), &name, profile);
            }
        }
    }
    // What is of one kind is drawn together.
    let kinds: BTreeSet<&str> = outcome.curves.iter().map(|curve| curve.y.as_str()).collect();
    for kind in kinds {
        let curves: Vec<&Curve> = outcome.curves.iter().filter(|it| it.y == kind).collect();
        figure(plot::curves(&curves), &experiment.title, &outcome.profile);
    }
    _ = write!(
        html,
        "<p class=\"command\"><code>farside lab run {}{}</code> <em>simulated</em>, profile {}, seed {}</p>",
        escape(&experiment.id),
        if quick { " --quick" } else { "" },
        escape(&outcome.profile),
        outcome.seed
    );
    if outcome.claims.is_empty() {
        html.push_str("</section>");
        return;
    }
    html.push_str("<div class=\"table\"><table><thead><tr><th>claim</th><th>paper</th><th>here</th><th></th></tr></thead><tbody>");
    outcome.claims.iter().for_each(|claim| row(html, claim));
    html.push_str("</tbody></table></div></section>");
}

fn row(html: &mut String, claim: &Verdict) {
    let measured = claim.measured.map_or("–".into(), digits);
    let (class, word) = if claim.holds { ("yes", "holds") } else { ("no", "differs") };
    let why = claim
        .why
        .as_ref()
        .map_or(String::new(), |why| format!("<br><small>{}</small>", escape(why)));
    _ = write!(
        html,
        "<tr class=\"{class}\"><td title=\"{}\">{}{why}</td><td>{} {}</td><td>{measured}</td><td>{word}</td></tr>",
        escape(&claim.id),
        escape(&claim.what),
        claim.relation.sign(),
        digits(claim.expected)
    );
}
