//! A timeline of a run as SVG.
//!
//! Owns: the markup, escaped. Never: decides where anything is (`machine::timeline`), or reads a run.

use std::fmt::Write as _;

use crate::machine::timeline::{BAR, Bar, HEAD, Kind, ROW, Row, Timeline};
use crate::time;

use super::escaped;

/// A timeline, and what is known about it.
#[derive(Clone, Copy, Debug)]
pub struct Picture<'a> {
    /// Its name for people who cannot see it.
    pub title: &'a str,
    /// Where everything is.
    pub timeline: &'a Timeline,
    /// The address of a step, up to its id. Without it no step is a link.
    pub link: Option<&'a str>,
    /// The stylesheet of a picture in a file of its own.
    pub style: Option<&'a str>,
}

impl Picture<'_> {
    /// The picture as text.
    pub fn svg(&self) -> String {
        let Timeline { width, height, .. } = self.timeline;
        let (left, right) = self.timeline.span;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"graph times\" role=\"group\" aria-label=\"{0}\" \
             width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\">\n",
            escaped(self.title),
        );
        if let Some(style) = self.style {
            let _ = writeln!(svg, "<title>{}</title>", escaped(self.title));
            let _ = writeln!(svg, "<style>\n{style}</style>");
            let _ = writeln!(
                svg,
                "<rect class=\"page\" width=\"{width}\" height=\"{height}\"/>"
            );
        }
        // Rising stripes, as wide as the gaps between them.
        svg.push_str("<defs>");
        for (name, class) in [(WAITED, "waited"), (ASKED, "asked")] {
            let _ = write!(
                svg,
                "<pattern id=\"{name}\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\">\
                 <path class=\"stripe {class}\" d=\"M-1 1L1 -1M0 6L6 0M5 7L7 5\"/></pattern>"
            );
        }
        svg.push_str("</defs>\n");
        let bottom = height.saturating_sub(HEAD / 2);
        for (x, text) in &self.timeline.ticks {
            let _ = writeln!(
                svg,
                "<path class=\"tick\" d=\"M{x} {HEAD}V{bottom}\"/><text class=\"when\" x=\"{x}\" y=\"{}\" \
                 text-anchor=\"middle\">{text}</text>",
                HEAD - 8
            );
        }
        let _ = writeln!(svg, "<path class=\"tick\" d=\"M{left} {HEAD}H{right}\"/>");
        for row in &self.timeline.rows {
            self.row(row, &mut svg);
        }
        for fold in &self.timeline.folds {
            let idle = time::span(fold.idle);
            let _ = writeln!(
                svg,
                "<g class=\"fold\" role=\"img\" aria-label=\"{idle} without work, drawn shorter\">\
                 <title>{idle} without work, drawn shorter</title>\
                 <rect x=\"{}\" y=\"{HEAD}\" width=\"{}\" height=\"{}\"/>\
                 <text class=\"when\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">⋯</text></g>",
                fold.x,
                fold.width,
                bottom.saturating_sub(HEAD),
                fold.x + fold.width / 2,
                HEAD - 8
            );
        }
        svg.push_str("</svg>\n");
        svg
    }

    fn row(&self, row: &Row, svg: &mut String) {
        let told = escaped(&row.told);
        let close = match (self.link, row.step) {
            (Some(link), Some(step)) => {
                // Named by a title, since a label would have to repeat the text that stands in it.
                let _ = write!(
                    svg,
                    "<a href=\"{}{step}\"><title>{told}</title>",
                    escaped(link)
                );
                "</a>"
            }
            _ => {
                let role = if row.step.is_some() { "img" } else { "group" };
                let _ = write!(svg, "<g role=\"{role}\" aria-label=\"{told}\">");
                "</g>"
            }
        };
        let (left, right) = self.timeline.span;
        let _ = write!(
            svg,
            "<rect class=\"row\" x=\"0\" y=\"{}\" width=\"{right}\" height=\"{ROW}\"/>\
             <text class=\"name\" x=\"12\" y=\"{}\">{}</text>",
            row.y,
            row.y + 15,
            escaped(&row.label.text)
        );
        let y = row.y + (ROW - BAR) / 2;
        if let Some((from, to)) = row.extent {
            let from = from.max(left);
            let _ = write!(
                svg,
                "<rect class=\"extent\" x=\"{from}\" y=\"{}\" width=\"{}\" height=\"{}\"/>",
                row.y + 2,
                to.saturating_sub(from).max(2),
                ROW - 4
            );
        }
        for bar in &row.bars {
            // A row that is a step is a link as a whole.
            let link = self.link.filter(|_| row.step.is_none());
            let told = escaped(&bar.told);
            match link {
                Some(link) => {
                    let _ = write!(
                        svg,
                        "<a href=\"{}{}\" aria-label=\"{told}\">",
                        escaped(link),
                        bar.step
                    );
                    rect(bar, y, &told, svg);
                    svg.push_str("</a>");
                }
                None => rect(bar, y, &told, svg),
            }
        }
        svg.push_str(close);
        svg.push('\n');
    }
}

/// The stripes of a time in which something waited, and of one in which a person was asked.
const WAITED: &str = "waited";
const ASKED: &str = "asked";

fn rect(bar: &Bar, y: u32, told: &str, svg: &mut String) {
    let (class, fill) = match bar.kind {
        Kind::Waited => ("waited", Some(WAITED)),
        Kind::Asked => ("asked", Some(ASKED)),
        Kind::Runs => ("is-busy", None),
        Kind::Succeeded => ("is-good", None),
        Kind::Failed => ("is-bad", None),
        Kind::Stopped => ("is-over", None),
    };
    let fill = fill.map_or(String::new(), |name| format!(" fill=\"url(#{name})\""));
    let _ = write!(
        svg,
        "<rect class=\"time {class}\"{fill} x=\"{}\" y=\"{y}\" width=\"{}\" height=\"{BAR}\"><title>{told}</title></rect>",
        bar.x, bar.width
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::timeline::{AttemptTime, Facts, StepTime, place};
    use crate::model::{ExecutionResult, StepId, StepStatus};

    /// A run of these steps, each with an attempt that has failed and one that goes on.
    fn facts(nodes: usize, node: &str) -> Facts {
        let step = |at: usize| StepTime {
            id: StepId::new(),
            node: node.to_owned(),
            element: Some(at as u64),
            status: StepStatus::InProgress,
            created_at: 0,
            started_at: Some(10),
            completed_at: None,
            is_copied: false,
            attempts: [(1, 10, Some(20)), (2, 30, None)]
                .map(|(number, claimed, completed_at)| AttemptTime {
                    number,
                    claimed_at: Some(claimed),
                    completed_at,
                    result: completed_at.map(|_| ExecutionResult::Error),
                })
                .into(),
        };
        Facts {
            now: 1_000_000,
            steps: (0..nodes).map(step).collect(),
            ..Facts::default()
        }
    }

    #[test]
    fn every_step_is_a_link_and_what_is_hostile_stays_text() {
        let hostile = "'\"><script>alert(1)</script>&\u{202e}";
        for (steps, links) in [(1, 1), (200, 200), (300, 200)] {
            let timeline = place(&facts(steps, hostile));
            let svg = Picture {
                title: hostile,
                timeline: &timeline,
                link: Some("/runs/1/steps/"),
                style: None,
            };
            let svg = svg.svg();
            assert_eq!(svg.matches("<a href=\"/runs/1/steps/").count(), links);
            assert_eq!(svg.matches("<a ").count(), svg.matches("</a>").count());
            assert_eq!(svg.matches("<g ").count(), svg.matches("</g>").count());
            for forbidden in ["<script", " style=", "\u{202e}", "<style"] {
                assert!(!svg.contains(forbidden), "{svg}");
            }
            assert!(svg.len() < 200 << 10, "{} bytes", svg.len());
        }
    }

    #[test]
    fn a_picture_in_a_file_of_its_own_has_its_styles_and_no_links() {
        let timeline = place(&facts(2, "A"));
        let svg = Picture {
            title: "P",
            timeline: &timeline,
            link: None,
            style: Some(crate::svg::STYLE),
        };
        let svg = svg.svg();
        assert!(svg.contains("<title>P</title>") && svg.contains("prefers-color-scheme: dark"));
        assert!(svg.contains("fill=\"url(#waited)\"") && svg.contains("class=\"time is-bad\""));
        assert!(!svg.contains("<a "));
    }
}
