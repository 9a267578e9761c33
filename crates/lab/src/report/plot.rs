//! Lines in a plane, as SVG.

use std::fmt::Write;

use super::{digits, escape};
use crate::experiment::Plot;
use crate::run::{Point, Series};

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 64.0;
const BOTTOM: f64 = 44.0;
const TOP: f64 = 12.0;
const RIGHT: f64 = 16.0;

/// What of a point is drawn, to the right and upwards.
type Values = fn(&Point) -> (f64, f64);

/// What is on the axes: names, and the values of a point.
fn axes(plot: Plot) -> (&'static str, &'static str, Values) {
    match plot {
        Plot::ThroughputLatency => ("transactions per second", "median latency in µs", |it| {
            (it.throughput_tps, it.p50_us)
        }),
        Plot::ReadShare => ("% of transactions that only read", "transactions per second", |it| {
            (it.read_share.unwrap_or(0) as f64, it.throughput_tps)
        }),
        Plot::Objects => ("objects per transaction", "transactions per second", |it| {
            (it.objects.unwrap_or(0) as f64, it.throughput_tps)
        }),
        Plot::Coordinators => ("coordinators", "transactions per second", |it| {
            (it.coordinators as f64, it.throughput_tps)
        }),
    }
}

/// A plot of some series, with its legend.
pub(super) fn draw(plot: Plot, series: &[&Series]) -> String {
    let (x_name, y_name, of) = axes(plot);
    let all = || series.iter().flat_map(|it| it.points.iter().map(of));
    let x_most = nice(all().map(|(x, _)| x).fold(0.0, f64::max));
    let y_most = nice(all().map(|(_, y)| y).fold(0.0, f64::max));
    let x_at = |x: f64| LEFT + x / x_most * (WIDTH - LEFT - RIGHT);
    let y_at = |y: f64| HEIGHT - BOTTOM - y / y_most * (HEIGHT - BOTTOM - TOP);
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{} over {}\">",
        escape(y_name),
        escape(x_name)
    );
    for step in 0..=4 {
        let (x, y) = (x_most * f64::from(step) / 4.0, y_most * f64::from(step) / 4.0);
        let (x_px, y_px) = (x_at(x), y_at(y));
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{LEFT}\" y1=\"{y_px:.1}\" x2=\"{right}\" y2=\"{y_px:.1}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\
             <text x=\"{x_px:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            LEFT - 6.0,
            y_px + 4.0,
            digits(y),
            bottom + 16.0,
            digits(x)
        );
    }
    _ = write!(
        svg,
        "<text class=\"axis\" x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"middle\">{}</text>\
         <text class=\"axis\" transform=\"translate(12 {:.0}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
        (LEFT + WIDTH) / 2.0,
        HEIGHT - 6.0,
        escape(x_name),
        HEIGHT / 2.0,
        escape(y_name)
    );
    for (number, it) in series.iter().enumerate() {
        let points: Vec<_> = it.points.iter().map(of).map(|(x, y)| (x_at(x), y_at(y))).collect();
        let path: Vec<_> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        _ = write!(svg, "<g class=\"s{}\"><polyline points=\"{}\"/>", number % 6, path.join(" "));
        for ((x, y), point) in points.iter().zip(&it.points) {
            let about = format!(
                "{}: {}/s, p50 {} µs, p99 {} µs, {}×{}",
                it.name,
                digits(point.throughput_tps),
                digits(point.p50_us),
                digits(point.p99_us),
                point.threads,
                point.coordinators
            );
            let about = escape(&about);
            _ = write!(
                svg,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"><title>{about}</title></circle>"
            );
        }
        svg.push_str("</g>");
    }
    svg.push_str("</svg><ul class=\"legend\">");
    for (number, it) in series.iter().enumerate() {
        _ = write!(svg, "<li><i class=\"s{}\"></i>{}</li>", number % 6, escape(&it.protocol));
    }
    svg.push_str("</ul>");
    svg
}

/// The next larger number that is easy to read.
fn nice(most: f64) -> f64 {
    let mut unit = 1.0;
    while unit * 10.0 <= most {
        unit *= 10.0;
    }
    while unit > most && unit > 1e-9 {
        unit /= 10.0;
    }
    let steps = [1.0, 2.0, 4.0, 5.0, 8.0, 10.0];
    let step = steps.into_iter().find(|step| step * unit >= most);
    step.unwrap_or(10.0) * unit
}

#[cfg(test)]
mod tests {
    use super::nice;

    #[test]
    fn axes_end_at_numbers_that_are_easy_to_read() {
        assert_eq!([nice(7.3e6), nice(0.9), nice(10.0), nice(230.0)], [8e6, 1.0, 10.0, 400.0]);
    }
}
