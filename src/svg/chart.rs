//! Counts over time as SVG: small rows of bars, and a chart of runs by the hour.
//!
//! Owns: the places of bars, and the markup, escaped. Never: counts anything, or tells something by colour
//! alone: each picture has its numbers in its name.

use std::fmt::Write as _;

use crate::number::grouped;

use super::escaped;

/// The runs of a minute or an hour.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bar {
    /// Runs that started.
    pub started: u64,
    /// Runs that completed.
    pub completed: u64,
    /// Runs that halted.
    pub halted: u64,
    /// The same in words, for a person who points at it.
    pub told: String,
    /// The time below the bar; only some bars have one.
    pub tick: Option<String>,
    /// It includes the counts of other times, or not all of its own.
    pub is_odd: bool,
}

/// A bar's columns in a small row, one of which is a gap.
const STEP: usize = 4;

/// The lines of a small row.
const SMALL: u64 = 18;

/// A small row of bars: each is a whole, of which a part is bad.
pub fn row(label: &str, bars: &[(u64, u64)]) -> String {
    let most = bars.iter().map(|(whole, _)| *whole).max().unwrap_or(0);
    let (mut good, mut bad) = (String::new(), String::new());
    for (at, (whole, part)) in bars.iter().enumerate() {
        let x = at * STEP;
        let (tall, low) = (height(*whole, most, SMALL), height(*part, most, SMALL));
        if tall > low {
            let _ = write!(good, "M{x} {}h3V{}h-3z", SMALL - tall, SMALL - low);
        }
        if low > 0 {
            let _ = write!(bad, "M{x} {}h3V{SMALL}h-3z", SMALL - low);
        }
    }
    let (width, tall) = (bars.len() * STEP, SMALL + 1);
    let label = escaped(label);
    let mut svg = format!(
        "<svg class=\"spark\" role=\"img\" aria-label=\"{label}\" width=\"{width}\" height=\"{tall}\" viewBox=\"0 0 \
         {width} {tall}\"><title>{label}</title><path class=\"spark-floor\" d=\"M0 {SMALL}h{width}v1H0z\"/>"
    );
    for (class, path) in [("spark-bar", good), ("spark-bad", bad)] {
        if !path.is_empty() {
            let _ = write!(svg, "<path class=\"{class}\" d=\"{path}\"/>");
        }
    }
    svg.push_str("</svg>");
    svg
}

/// How many of the lines a number takes: even the smallest number can be seen.
fn height(number: u64, most: u64, lines: u64) -> u64 {
    match number {
        0 => 0,
        _ => {
            let lines = u128::from(number) * u128::from(lines) / u128::from(most.max(1));
            u64::try_from(lines).unwrap_or(1).max(1)
        }
    }
}

/// The chart's columns: those for the numbers at its left, and those of all bars.
const LEFT: u64 = 56;
const BARS: u64 = 672;

/// The chart's lines: above the bars, of the bars, and with the times below.
const TOP: u64 = 10;
const TALL: u64 = 120;
const BELOW: u64 = 22;

/// A chart of these bars: the completed runs on top of the halted ones; a line for the started ones.
pub fn chart(label: &str, bars: &[Bar]) -> String {
    let whole = |bar: &Bar| (bar.completed.saturating_add(bar.halted)).max(bar.started);
    let most = round(bars.iter().map(whole).max().unwrap_or(0));
    let step = BARS / (bars.len() as u64).max(1);
    let (width, tall) = (LEFT + BARS + 8, TOP + TALL + BELOW);
    let floor = TOP + TALL;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"graph rates\" role=\"img\" aria-label=\"{}\" \
         width=\"{width}\" height=\"{tall}\" viewBox=\"0 0 {width} {tall}\">\n",
        escaped(label)
    );
    for (part, number) in [(0, 0), (1, most / 2), (2, most)] {
        let y = floor - TALL * part / 2;
        if part == 1 && !most.is_multiple_of(2) {
            continue;
        }
        let _ = writeln!(
            svg,
            "<path class=\"tick\" d=\"M{LEFT} {y}H{}\"/><text class=\"when\" x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>",
            LEFT + BARS,
            LEFT - 6,
            y + 4,
            grouped(number)
        );
    }
    let mut line = String::new();
    for (at, bar) in (0..).zip(bars) {
        let x = LEFT + at * step;
        let inner = step.saturating_sub(1).max(1);
        let odd = if bar.is_odd { " class=\"odd\"" } else { "" };
        let _ = write!(
            svg,
            "<g{odd}><title>{}</title><rect class=\"row\" x=\"{x}\" y=\"{TOP}\" width=\"{step}\" height=\"{TALL}\"/>",
            escaped(&bar.told)
        );
        let low = height(bar.halted, most, TALL);
        let high = height(bar.completed, most, TALL);
        for (class, number, below) in [("bad", low, 0), ("good", high, low)] {
            if number > 0 {
                let y = floor.saturating_sub(number + below);
                let _ = write!(
                    svg,
                    "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{inner}\" height=\"{number}\"/>"
                );
            }
        }
        svg.push_str("</g>\n");
        let y = floor - height(bar.started, most, TALL);
        let letter = if line.is_empty() { 'M' } else { 'L' };
        let _ = write!(line, "{letter}{x} {y}h{step}");
        if let Some(tick) = &bar.tick {
            let _ = writeln!(
                svg,
                "<path class=\"tick\" d=\"M{x} {floor}v4\"/><text class=\"when\" x=\"{x}\" y=\"{}\" \
                 text-anchor=\"middle\">{}</text>",
                floor + 17,
                escaped(tick)
            );
        }
    }
    let _ = writeln!(svg, "<path class=\"started\" d=\"{line}\"/>");
    svg.push_str("</svg>\n");
    svg
}

/// The next number that consists of a 1, 2 or 5 and zeros; at least 1.
fn round(number: u64) -> u64 {
    let mut power = 1_u64;
    loop {
        for digit in [1, 2, 5] {
            let round = power.saturating_mul(digit);
            if round >= number {
                return round;
            }
        }
        power = power.saturating_mul(10);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_shows_the_least_there_is_and_tells_its_numbers() {
        let svg = row(
            "10 <runs>",
            &[(1_000_000, 0), (1, 1), (0, 0), (500_000, 250_000)],
        );
        assert!(
            svg.contains("aria-label=\"10 &lt;runs&gt;\"") && svg.contains("role=\"img\""),
            "{svg}"
        );
        assert!(
            svg.contains("<path class=\"spark-bar\" d=\"M0 0h3V18h-3zM12 9h3V14h-3z\"/>"),
            "{svg}"
        );
        assert!(
            svg.contains("<path class=\"spark-bad\" d=\"M4 17h3V18h-3zM12 14h3V18h-3z\"/>"),
            "{svg}"
        );
        let none = row("none", &[(0, 0); 24]);
        assert!(
            !none.contains("spark-b") && none.contains("width=\"96\""),
            "{none}"
        );
    }

    #[test]
    fn a_chart_reaches_up_to_a_round_number_and_lays_what_completed_upon_what_halted() {
        assert_eq!(
            [0, 1, 3, 11, 20, 21, u64::MAX].map(round),
            [1, 1, 5, 20, 20, 50, u64::MAX]
        );
        let bar = |started, completed, halted| Bar {
            started,
            completed,
            halted,
            told: "<10:00>".to_owned(),
            tick: Some("10:00".to_owned()),
            is_odd: halted > 0,
        };
        let svg = chart("R&D", &[bar(4, 3, 0), bar(0, 5, 5), bar(0, 0, 0)]);
        assert!(svg.contains("aria-label=\"R&amp;D\""), "{svg}");
        assert!(svg.contains("<title>&lt;10:00&gt;</title>"), "{svg}");
        assert!(
            svg.contains("<rect class=\"good\" x=\"56\" y=\"94\" width=\"223\" height=\"36\"/>"),
            "{svg}"
        );
        assert!(
            svg.contains("<rect class=\"bad\" x=\"280\" y=\"70\" width=\"223\" height=\"60\"/>"),
            "{svg}"
        );
        assert!(
            svg.contains("<rect class=\"good\" x=\"280\" y=\"10\" width=\"223\" height=\"60\"/>"),
            "{svg}"
        );
        assert!(svg.contains("<g class=\"odd\">"), "{svg}");
        assert!(
            svg.contains("<path class=\"started\" d=\"M56 82h224L280 130h224L504 130h224\"/>"),
            "{svg}"
        );
        // The largest number has room.
        let most = chart("", &[bar(u64::MAX, u64::MAX, u64::MAX)]);
        assert!(most.contains("<rect class=\"good\""), "{most}");
    }
}
