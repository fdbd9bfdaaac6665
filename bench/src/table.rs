//! The table: what was measured, what it is held against, and whether the target is met. The only place that writes to
//! standard output.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;

use crate::samples::Samples;

/// A quick run shares its machine with others and takes few samples: it fails only where a target is missed by more
/// than this factor. The full run has no slack.
const QUICK_SLACK: f64 = 1.5;

/// What a figure must reach.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Target {
    /// At most so many times its limit.
    MostTimes(f64),
    /// At least so many times its limit.
    LeastTimes(f64),
    /// At most so much, whatever the machine.
    Most(f64),
}

/// One figure.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Row {
    pub name: String,
    pub what: String,
    pub unit: &'static str,
    /// Which of the numbers is held against the target.
    pub judged: &'static str,
    pub value: f64,
    pub samples: usize,
    pub p50: Option<f64>,
    pub p99: Option<f64>,
    pub max: Option<f64>,
    pub limit_name: Option<String>,
    pub limit: Option<f64>,
    pub ratio: Option<f64>,
    pub target: Target,
    /// How far it has come where the target is out of reach so far; `docs/performance.md` says why. A quick run fails when
    /// it falls behind that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reached: Option<Target>,
}

impl Row {
    /// A figure of times, of which the median is judged.
    pub(crate) fn times(name: &str, what: &str, samples: &Samples, target: Target) -> Self {
        Self {
            name: name.to_owned(),
            what: what.to_owned(),
            unit: "µs",
            judged: "p50",
            value: samples.p50(),
            samples: samples.count(),
            p50: Some(samples.p50()),
            p99: Some(samples.p99()),
            max: Some(samples.max()),
            limit_name: None,
            limit: None,
            ratio: None,
            target,
            reached: None,
        }
    }

    /// A figure that is one number.
    pub(crate) fn number(
        name: &str,
        what: &str,
        unit: &'static str,
        value: f64,
        samples: usize,
        target: Target,
    ) -> Self {
        let (p50, p99, max, limit_name, limit, ratio) = (None, None, None, None, None, None);
        let (name, what) = (name.to_owned(), what.to_owned());
        let (judged, reached) = ("value", None);
        Self { name, what, unit, judged, value, samples, p50, p99, max, limit_name, limit, ratio, target, reached }
    }

    /// Judges the worst but one percent instead of the median.
    pub(crate) fn by_p99(mut self) -> Self {
        self.judged = "p99";
        self.value = self.p99.unwrap_or(self.value);
        self
    }

    /// Holds the figure against something measured beside it.
    pub(crate) fn against(mut self, name: &str, limit: f64) -> Self {
        self.limit_name = Some(name.to_owned());
        self.limit = Some(limit);
        self.ratio = Some(self.value / limit);
        self
    }

    /// Notes how far this has come, short of its target.
    pub(crate) fn reached(mut self, so_far: Target) -> Self {
        self.reached = Some(so_far);
        self
    }

    /// The better of two measurements of the same thing.
    pub(crate) fn better(self, other: Self) -> Self {
        let worth = |row: &Self| match row.target {
            Target::MostTimes(_) => -row.ratio.unwrap_or(f64::INFINITY),
            Target::LeastTimes(_) => row.ratio.unwrap_or(0.0),
            Target::Most(_) => -row.value,
        };
        if worth(&other) > worth(&self) { other } else { self }
    }

    fn met(&self, slack: f64) -> bool {
        self.meets(self.target, slack)
    }

    /// Whether it is no worse than it has been.
    fn stands(&self, slack: f64) -> bool {
        self.met(slack) || self.reached.is_some_and(|reached| self.meets(reached, slack))
    }

    fn meets(&self, target: Target, slack: f64) -> bool {
        match target {
            Target::MostTimes(times) => self.ratio.is_some_and(|ratio| ratio <= times * slack),
            Target::LeastTimes(times) => self.ratio.is_some_and(|ratio| ratio >= times / slack),
            Target::Most(most) => self.value <= most * slack,
        }
    }
}

/// All figures of a run.
#[derive(Debug, Serialize)]
pub(crate) struct Table {
    quick: bool,
    slack: f64,
    cores: usize,
    rows: Vec<Judged>,
}

#[derive(Debug, Serialize)]
struct Judged {
    #[serde(flatten)]
    row: Row,
    /// Without any slack.
    met: bool,
}

impl Table {
    pub(crate) fn new(quick: bool) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self { quick, slack: if quick { QUICK_SLACK } else { 1.0 }, cores, rows: Vec::new() }
    }

    /// Whether a run with this row can end well. A full run asks for the targets themselves.
    pub(crate) fn passes(&self, row: &Row) -> bool {
        if self.quick { row.stands(self.slack) } else { row.met(self.slack) }
    }

    /// Adds a row and shows it at once: a run takes minutes.
    pub(crate) fn push(&mut self, row: Row) {
        let met = row.met(1.0);
        let verdict = match (met, row.met(self.slack)) {
            (true, _) => "yes",
            (false, true) => "within the slack",
            (false, false) if self.quick && row.stands(self.slack) => "NO, as before",
            (false, false) => "NO",
        };
        let numbers = match (row.p50, row.p99, row.max) {
            (Some(p50), Some(p99), Some(max)) => format!("{} | {} | {}", figure(p50), figure(p99), figure(max)),
            _ => format!("{} | | ", figure(row.value)),
        };
        let limit = match (&row.limit_name, row.limit) {
            (Some(name), Some(limit)) => format!("{name}: {}", figure(limit)),
            _ => String::new(),
        };
        let ratio = row.ratio.map(|ratio| format!("{ratio:.2} x")).unwrap_or_default();
        let target = match row.target {
            Target::MostTimes(times) => format!("{} ≤ {times} x", row.judged),
            Target::LeastTimes(times) => format!("≥ {times} x"),
            Target::Most(most) => format!("{} ≤ {}", row.judged, figure(most)),
        };
        write(&format!(
            "| {} | {} | {} | {} | {numbers} | {limit} | {ratio} | {target} | {verdict} |",
            row.name, row.what, row.unit, row.samples
        ));
        self.rows.push(Judged { row, met });
    }

    pub(crate) fn write_json(&self, file: &Path) -> crate::Fallible<()> {
        Ok(std::fs::write(file, serde_json::to_vec_pretty(self)?)?)
    }

    /// Says how it went. True when every target is met, within the slack of this run.
    pub(crate) fn finish(&self, json: &Path) -> bool {
        let missed: Vec<&str> =
            self.rows.iter().filter(|j| !self.passes(&j.row)).map(|j| j.row.name.as_str()).collect();
        write(&format!("\n{} cores; JSON in {}", self.cores, json.display()));
        if self.quick {
            write(&format!("a quick run: a target may be missed by a factor of {QUICK_SLACK}"));
        }
        if !missed.is_empty() {
            write(&format!("missed: {}", missed.join(", ")));
        }
        missed.is_empty()
    }
}

/// Three digits that matter.
fn figure(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 || v == 0.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

pub(crate) fn head() {
    write("| name | figure | unit | samples | p50 | p99 | max | limit, same run | ratio | target | met |");
    write("|---|---|---|---|---|---|---|---|---|---|---|");
}

/// One line for whoever reads the table.
pub(crate) fn write(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// A run that could not be made.
pub(crate) fn complain(what: &str) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "ttbench: {what}");
    ExitCode::FAILURE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_judged_in_its_own_direction_and_only_a_quick_run_has_slack() {
        let row = |target, value: f64| Row::number("n", "w", "1", value, 1, target).against("limit", 1.0);
        assert!(row(Target::MostTimes(4.0), 4.0).met(1.0) && !row(Target::MostTimes(4.0), 4.1).met(1.0));
        assert!(row(Target::MostTimes(4.0), 5.9).met(QUICK_SLACK));
        assert!(row(Target::LeastTimes(10.0), 10.0).met(1.0) && !row(Target::LeastTimes(10.0), 9.0).met(1.0));
        assert!(row(Target::LeastTimes(10.0), 7.0).met(QUICK_SLACK));
        assert!(row(Target::Most(0.0), 0.0).met(1.0) && !row(Target::Most(0.0), 1.0).met(QUICK_SLACK));
    }

    #[test]
    fn a_target_out_of_reach_is_still_missed_and_what_was_reached_must_stand() {
        let row = |value| {
            let row = Row::number("n", "w", "1/s", value, 1, Target::LeastTimes(10.0)).against("limit", 1.0);
            row.reached(Target::LeastTimes(4.0))
        };
        let (full, quick) = (Table::new(false), Table::new(true));
        assert!(!full.passes(&row(4.5)) && quick.passes(&row(4.5)) && quick.passes(&row(3.0)));
        assert!(!quick.passes(&row(2.0)), "worse than it has been");
        assert!(full.passes(&row(10.0)));
        assert!((row(2.0).better(row(3.0)).value - 3.0).abs() < 1e-9);
    }
}
