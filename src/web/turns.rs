//! Turns: the order in which the questions of visitors are asked.
//!
//! Owns: a line for each visitor, the lines' turns, and the rule that a line grows only while as much is left for
//! others. Never: knows a question.
//!
//! So a visitor who asks for many slow pages waits for those alone. The console's own questions, such as the one about
//! its health, have a line that visitors cannot fill.

use std::collections::VecDeque;

use super::quota::Who;

tokio::task_local! {
    /// The visitor whose request this task answers.
    static WHO: Who;
}

/// Runs this future with its questions in the line of this visitor.
pub async fn of<T>(who: Who, answer: impl Future<Output = T>) -> T {
    WHO.scope(who, answer).await
}

/// The visitor whose request is being answered; none if the console itself asks.
pub fn who() -> Option<Who> {
    WHO.try_with(Who::clone).ok()
}

/// Questions that wait.
pub struct Lines<T> {
    /// None is empty, and the first has the next turn.
    lines: VecDeque<(Option<Who>, VecDeque<T>)>,
    /// The number of questions of all visitors that may wait, and the number of the console's own.
    bound: usize,
}

impl<T> Lines<T> {
    /// Nothing waits.
    pub fn new(bound: usize) -> Self {
        Self {
            lines: VecDeque::new(),
            bound,
        }
    }

    /// Adds a question to the end of this visitor's line; false if too many wait.
    pub fn join(&mut self, who: Option<Who>, question: T) -> bool {
        let of_visitors = self.lines.iter().filter(|it| it.0.is_some());
        let all: usize = of_visitors.map(|it| it.1.len()).sum();
        let free = match who {
            Some(_) => self.bound - all,
            None => self.bound,
        };
        let line = self.lines.iter().position(|it| it.0 == who);
        let theirs = line.map_or(0, |line| self.lines[line].1.len());
        if theirs >= free {
            return false;
        }
        match line {
            Some(line) => self.lines[line].1.push_back(question),
            None => self.lines.push_back((who, VecDeque::from([question]))),
        }
        true
    }

    /// Drops the questions of which this is false: they leave their places to others.
    pub fn retain(&mut self, mut waits: impl FnMut(&T) -> bool) {
        for (_, line) in &mut self.lines {
            line.retain(&mut waits);
        }
        self.lines.retain(|(_, line)| !line.is_empty());
    }

    /// Drops all questions.
    pub fn clear(&mut self) {
        self.lines.clear();
    }

    /// The next question: the first of the line whose turn it is.
    pub fn next(&mut self) -> Option<T> {
        let (who, mut line) = self.lines.pop_front()?;
        let question = line.pop_front();
        if !line.is_empty() {
            self.lines.push_back((who, line));
        }
        question
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who(name: &str) -> Option<Who> {
        (name != "-").then(|| Who::Named(name.to_owned()))
    }

    fn asked(lines: &mut Lines<String>) -> String {
        let all: Vec<String> = std::iter::from_fn(|| lines.next()).collect();
        all.join(" ")
    }

    #[test]
    fn visitors_take_turns_and_each_is_answered_in_order() {
        let mut lines = Lines::new(100);
        for question in ["a1", "a2", "a3", "b1", "-1", "c1", "-2", "c2", "a4"] {
            assert!(lines.join(who(&question[..1]), question.to_owned()));
        }
        assert_eq!(asked(&mut lines), "a1 b1 -1 c1 a2 -2 c2 a3 a4");
        assert!(lines.lines.is_empty());
    }

    #[test]
    fn a_visitor_who_comes_late_waits_for_one_question_of_each_other_visitor() {
        let mut lines = Lines::new(100);
        for n in 0..50 {
            assert!(lines.join(who("a"), n));
        }
        assert_eq!((lines.next(), lines.next()), (Some(0), Some(1)));
        assert!(lines.join(who("b"), 100) && lines.join(None, 200));
        let next: Vec<_> = (0..4).filter_map(|_| lines.next()).collect();
        assert_eq!(next, [2, 100, 200, 3]);
    }

    #[test]
    fn no_visitor_fills_the_lines_of_others_or_the_consoles_own() {
        let mut lines = Lines::new(64);
        let joined =
            |lines: &mut Lines<()>, name| (0..100).filter(|_| lines.join(who(name), ())).count();
        assert_eq!(joined(&mut lines, "a"), 32);
        assert_eq!(joined(&mut lines, "b"), 16);
        assert_eq!(joined(&mut lines, "-"), 64);
        assert_eq!(joined(&mut lines, "c"), 8);
        for name in ["d", "e", "f", "g"] {
            joined(&mut lines, name);
        }
        assert_eq!(joined(&mut lines, "z"), 0, "visitors have all places");
        while lines.next().is_some() {}
        assert_eq!(joined(&mut lines, "z"), 32);
    }

    #[test]
    fn questions_that_are_dropped_leave_the_turns_of_the_others() {
        let mut lines = Lines::new(100);
        for question in ["a1", "b1", "b2", "c1", "c2"] {
            assert!(lines.join(who(&question[..1]), question.to_owned()));
        }
        lines.retain(|question| !["a1", "b1", "c2"].contains(&question.as_str()));
        assert_eq!(asked(&mut lines), "b2 c1");
    }
}
