//! Lines in a plane, and bars, as SVG.

use std::fmt::Write;

use super::{digits, escape};
use crate::experiment::Plot;
use crate::run::{Curve, Point, Series};

// Small, for phones; larger screens show it enlarged.
const WIDTH: f64 = 420.0;
const HEIGHT: f64 = 270.0;
const LEFT: f64 = 58.0;
const BOTTOM: f64 = 40.0;
const TOP: f64 = 10.0;
const RIGHT: f64 = 14.0;
/// Lines with more points than that are drawn without dots.
const DOTS: usize = 40;
const COLOURS: usize = 6;

/// What of a point is drawn, to the right and upwards.
type Values = fn(&Point) -> (f64, f64);

/// What is on the axes.
struct Axes<'a> {
    x: &'a str,
    y: &'a str,
    /// Whether each step to the right is ten times as much.
    decades: bool,
}

struct Line<'a> {
    name: &'a str,
    points: Vec<(f64, f64)>,
    /// What is told of each point.
    about: Vec<String>,
}

fn axes(plot: Plot) -> (Axes<'static>, Values) {
    const PER_SECOND: &str = "transactions per second";
    let (x, y, values): (_, _, Values) = match plot {
        Plot::ThroughputLatency => {
            (PER_SECOND, "median latency in µs", |it| (it.throughput_tps, it.p50_us))
        }
        Plot::ReadShare => ("% of transactions that only read", PER_SECOND, |it| {
            (it.read_share.unwrap_or(0) as f64, it.throughput_tps)
        }),
        Plot::Objects => ("objects per transaction", PER_SECOND, |it| {
            (it.objects.unwrap_or(0) as f64, it.throughput_tps)
        }),
        Plot::Coordinators | Plot::Bars => {
            ("coordinators", PER_SECOND, |it| (it.coordinators as f64, it.throughput_tps))
        }
        Plot::Skew => ("skew (Zipf)", PER_SECOND, |it| (it.skew.unwrap_or(0.0), it.throughput_tps)),
        Plot::Rows => ("rows of a transaction", "rows read in a second", |it| {
            (it.objects.unwrap_or(1) as f64, it.rows.map_or(f64::NAN, |rows| rows.per_second))
        }),
    };
    (Axes { x, y, decades: plot == Plot::Rows }, values)
}

/// A plot of some series, with its legend.
pub(super) fn draw(plot: Plot, series: &[&Series]) -> String {
    if plot == Plot::Bars {
        return bars(series);
    }
    let (axes, of) = axes(plot);
    let lines = series.iter().map(|it| Line {
        name: &it.protocol,
        points: it.points.iter().map(of).collect(),
        about: it.points.iter().map(|point| about(it, point)).collect(),
    });
    lines_in_a_plane(&axes, &lines.collect::<Vec<_>>())
}

fn about(series: &Series, point: &Point) -> String {
    format!(
        "{}: {}/s, p50 {} µs, p99 {} µs, {}×{}",
        series.name,
        digits(point.throughput_tps),
        digits(point.p50_us),
        digits(point.p99_us),
        point.threads,
        point.coordinators
    )
}

/// How latencies are spread at the largest load.
pub(super) fn distribution(series: &[&Series]) -> String {
    let axes = Axes { x: "latency in µs", y: "share of transactions", decades: true };
    let lines = series.iter().map(|it| Line {
        name: &it.protocol,
        points: it.points.last().map_or(Vec::new(), |point| point.latencies.clone()),
        about: Vec::new(),
    });
    lines_in_a_plane(&axes, &lines.collect::<Vec<_>>())
}

/// What was not measured with workloads.
pub(super) fn curves(curves: &[&Curve]) -> String {
    let Some(first) = curves.first() else { return String::new() };
    let axes = Axes { x: &first.x, y: &first.y, decades: false };
    let about =
        |it: &Curve, (x, y): &(f64, f64)| format!("{}: {}, {}", it.name, digits(*x), digits(*y));
    let lines = curves.iter().map(|it| Line {
        name: &it.name,
        points: it.points.clone(),
        about: it.points.iter().map(|point| about(it, point)).collect(),
    });
    lines_in_a_plane(&axes, &lines.collect::<Vec<_>>())
}

/// One direction: from where to where, and where on the page.
struct Scale {
    least: f64,
    most: f64,
    from: f64,
    to: f64,
    decades: bool,
}

impl Scale {
    fn at(&self, value: f64) -> f64 {
        let place = |value: f64| if self.decades { value.log10() } else { value };
        let share = (place(value) - place(self.least)) / (place(self.most) - place(self.least));
        self.from + share * (self.to - self.from)
    }

    /// Where lines are drawn across.
    fn ticks(&self) -> Vec<f64> {
        if !self.decades {
            return (0..=4)
                .map(|step| self.least + (self.most - self.least) * f64::from(step) / 4.0)
                .collect();
        }
        let mut all = vec![self.least];
        while all[all.len() - 1] < self.most {
            all.push(all[all.len() - 1] * 10.0);
        }
        all
    }
}

fn scale(values: impl Iterator<Item = f64> + Clone, from: f64, to: f64, decades: bool) -> Scale {
    let values = values.filter(|value| value.is_finite());
    let most = values.clone().fold(0.0, f64::max).max(1e-9);
    let least = values.fold(most, f64::min);
    let (least, most) = match decades {
        true => (10f64.powf(least.max(1e-3).log10().floor()), 10f64.powf(most.log10().ceil())),
        false if least < 0.0 => (-nice(-least), nice(most)),
        false => (0.0, nice(most)),
    };
    let most = if most > least { most } else { least * 10.0 };
    Scale { least, most, from, to, decades }
}

fn lines_in_a_plane(axes: &Axes<'_>, lines: &[Line<'_>]) -> String {
    let all = || lines.iter().flat_map(|line| line.points.iter().copied());
    let x = scale(all().map(|(x, _)| x), LEFT, WIDTH - RIGHT, axes.decades);
    let y = scale(all().map(|(_, y)| y), HEIGHT - BOTTOM, TOP, false);
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{} over {}\">",
        escape(axes.y),
        escape(axes.x)
    );
    grid(&mut svg, axes, &x, &y);
    for (number, line) in lines.iter().enumerate() {
        let seen = line.points.iter().filter(|(_, up)| up.is_finite());
        let places: Vec<_> = seen.map(|(right, up)| (x.at(*right), y.at(*up))).collect();
        let path: Vec<_> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        _ = write!(
            svg,
            "<g class=\"s{}\"><polyline points=\"{}\"/>",
            number % COLOURS,
            path.join(" ")
        );
        if places.len() <= DOTS {
            for ((x, y), about) in places.iter().zip(&line.about) {
                let about = escape(about);
                _ = write!(
                    svg,
                    "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"><title>{about}</title></circle>"
                );
            }
        }
        svg.push_str("</g>");
    }
    svg.push_str("</svg><ul class=\"legend\">");
    for (number, line) in lines.iter().enumerate() {
        let colour = number % COLOURS;
        _ = write!(svg, "<li><i class=\"s{colour}\"></i>{}</li>", escape(line.name));
    }
    svg.push_str("</ul>");
    svg
}

fn grid(svg: &mut String, axes: &Axes<'_>, x: &Scale, y: &Scale) {
    for tick in y.ticks() {
        let at = y.at(tick);
        _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{}\" y2=\"{at:.1}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            WIDTH - RIGHT,
            LEFT - 5.0,
            at + 4.0,
            digits(tick)
        );
    }
    for tick in x.ticks() {
        let anchor = if tick >= x.most { "end" } else { "middle" };
        _ = write!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{}</text>",
            x.at(tick) + if tick >= x.most { RIGHT - 2.0 } else { 0.0 },
            HEIGHT - BOTTOM + 14.0,
            digits(tick)
        );
    }
    _ = write!(
        svg,
        "<text class=\"axis\" x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"middle\">{}</text>\
         <text class=\"axis\" transform=\"translate(11 {:.0}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
        (LEFT + WIDTH) / 2.0,
        HEIGHT - 6.0,
        escape(axes.x),
        (HEIGHT - BOTTOM) / 2.0,
        escape(axes.y)
    );
}

/// The best throughput of each series.
fn bars(series: &[&Series]) -> String {
    const ROW: f64 = 34.0;
    let best = |it: &Series| it.points.iter().map(|point| point.throughput_tps).fold(0.0, f64::max);
    let most = series.iter().map(|it| best(it)).fold(1e-9, f64::max);
    let height = ROW * series.len() as f64;
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"transactions per second\">"
    );
    for (number, it) in series.iter().enumerate() {
        let (top, width) = (ROW * number as f64, best(it) / most * (WIDTH - 80.0));
        _ = write!(
            svg,
            "<text x=\"0\" y=\"{:.1}\">{}</text>\
             <rect class=\"s{}\" x=\"0\" y=\"{:.1}\" width=\"{width:.1}\" height=\"12\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\">{}/s</text>",
            top + 12.0,
            escape(&it.protocol),
            number % COLOURS,
            top + 16.0,
            width + 5.0,
            top + 26.5,
            digits(best(it))
        );
    }
    svg.push_str("</svg>");
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
    use super::*;

    #[test]
    fn axes_end_at_numbers_that_are_easy_to_read() {
        assert_eq!([nice(7.3e6), nice(0.9), nice(10.0), nice(230.0)], [8e6, 1.0, 10.0, 400.0]);
        let before = scale([-40.0, 119.0].into_iter(), 0.0, 100.0, false);
        assert_eq!((before.least, before.most), (-40.0, 200.0));
        let rows = scale([1.0, 10_000.0].into_iter(), 0.0, 100.0, true);
        assert_eq!(rows.ticks(), [1.0, 10.0, 100.0, 1000.0, 10_000.0]);
        assert_eq!(rows.at(100.0), 50.0);
    }
}
