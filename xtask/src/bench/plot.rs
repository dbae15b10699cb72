//! Line charts as SVG, both axes in powers of ten. Draws what it is given; knows no measurements.

use std::fmt::Write;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 150.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 50.0;
/// Distinguishable for people who see few colours too.
const COLOURS: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];

pub(super) struct Chart {
    pub(super) title: String,
    pub(super) x: String,
    pub(super) y: String,
    pub(super) lines: Vec<Line>,
}

pub(super) struct Line {
    pub(super) name: String,
    /// Values of zero or less have no place on such axes and are left out.
    pub(super) points: Vec<(f64, f64)>,
}

/// Whole powers of ten around the values.
struct Axis {
    first: i32,
    last: i32,
    from: f64,
    to: f64,
}

impl Axis {
    fn around(values: impl Iterator<Item = f64> + Clone, from: f64, to: f64) -> Axis {
        let least = values.clone().fold(f64::MAX, f64::min);
        let most = values.fold(f64::MIN_POSITIVE, f64::max);
        let first = least.min(most).log10().floor() as i32;
        Axis { first, last: (most.log10().ceil() as i32).max(first + 1), from, to }
    }

    fn place(&self, value: f64) -> f64 {
        let share = (value.log10() - f64::from(self.first)) / f64::from(self.last - self.first);
        self.from + share * (self.to - self.from)
    }

    fn ticks(&self) -> impl Iterator<Item = (f64, String)> + '_ {
        (self.first..=self.last).map(|power| {
            let value = 10_f64.powi(power);
            (self.place(value), if power < 0 { value.to_string() } else { thousands(value) })
        })
    }
}

impl Chart {
    pub(super) fn svg(&self) -> String {
        let points = || self.lines.iter().flat_map(Line::shown);
        let across = Axis::around(points().map(|(x, _)| x), LEFT, WIDTH - RIGHT);
        let up = Axis::around(points().map(|(_, y)| y), HEIGHT - BOTTOM, TOP);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n"
        );
        svg += &text(LEFT, 22.0, "start", &self.title);
        svg += &text((LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - 12.0, "middle", &self.x);
        svg += &text(LEFT, TOP - 5.0, "end", &self.y);
        for (x, label) in across.ticks() {
            svg += &rule((x, TOP), (x, HEIGHT - BOTTOM));
            svg += &text(x, HEIGHT - BOTTOM + 16.0, "middle", &label);
        }
        for (y, label) in up.ticks() {
            svg += &rule((LEFT, y), (WIDTH - RIGHT, y));
            svg += &text(LEFT - 6.0, y + 4.0, "end", &label);
        }
        for (number, line) in self.lines.iter().enumerate() {
            svg += &line.svg(number, &across, &up);
        }
        svg + "</svg>\n"
    }
}

impl Line {
    fn shown(&self) -> impl Iterator<Item = (f64, f64)> + Clone + '_ {
        self.points.iter().copied().filter(|(x, y)| *x > 0.0 && *y > 0.0)
    }

    fn svg(&self, number: usize, across: &Axis, up: &Axis) -> String {
        let colour = COLOURS[number % COLOURS.len()];
        let places: Vec<(f64, f64)> = self.shown().map(|(x, y)| (across.place(x), up.place(y))).collect();
        let path: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let mut svg =
            format!("<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" points=\"{}\"/>\n", path.join(" "));
        for (x, y) in &places {
            let _ = writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>");
        }
        let y = TOP + 14.0 + 18.0 * number as f64;
        let x = WIDTH - RIGHT + 12.0;
        let _ = writeln!(svg, "<rect x=\"{x}\" y=\"{}\" width=\"12\" height=\"3\" fill=\"{colour}\"/>", y - 5.0);
        svg + &text(x + 18.0, y, "start", &self.name)
    }
}

fn rule(from: (f64, f64), to: (f64, f64)) -> String {
    format!(
        "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"#dddddd\"/>\n",
        from.0, from.1, to.0, to.1
    )
}

fn text(x: f64, y: f64, anchor: &str, words: &str) -> String {
    let words = words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    format!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{words}</text>\n")
}

/// `10,000`
pub(super) fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_stand_where_their_powers_are() {
        let points = vec![(100.0, 1.0), (1000.0, 10.0), (10_000.0, 100.0), (10_000.0, 0.0)];
        let line = Line { name: "a < b".to_owned(), points };
        let chart = Chart { title: "t".to_owned(), x: "x".to_owned(), y: "y".to_owned(), lines: vec![line] };
        let svg = chart.svg();
        // A straight line from corner to corner.
        assert!(svg.contains("points=\"70.0,350.0 280.0,195.0 490.0,40.0\""), "{svg}");
        assert!(svg.contains(">10,000</text>") && svg.contains("a &lt; b"), "{svg}");
    }

    #[test]
    fn nothing_measured_is_an_empty_chart() {
        let chart = Chart { title: "t".to_owned(), x: "x".to_owned(), y: "y".to_owned(), lines: Vec::new() };
        assert!(!chart.svg().contains("NaN"));
    }

    #[test]
    fn numbers_have_commas() {
        assert_eq!((thousands(100.0), thousands(1_234_567.0)), ("100".to_owned(), "1,234,567".to_owned()));
    }
}
