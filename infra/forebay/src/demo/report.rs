//! The table of a demonstration: a row for each step, and what it comes to.

use std::fmt;

use serde::Serialize;

use super::logs::Logs;
use crate::manifest::{Answered, Step, Woken};
use crate::table::Widths;

/// Where there is nothing.
const NONE: &str = "–";
const HEAD: [&str; COLUMNS] = ["  delivery", "answer", "events", "ledger", "inbox", "what it shows"];
const COLUMNS: usize = 6;

/// What came of one step.
#[derive(Debug, Serialize)]
pub(super) struct Played {
    /// Its number, from 1.
    pub(super) step: usize,
    /// The recorded input, or the session.
    pub(super) name: String,
    /// What came of it.
    #[serde(flatten)]
    pub(super) came: Came,
    /// What it shows.
    pub(super) shows: String,
    /// In what this is not as expected.
    pub(super) differences: Vec<String>,
}

/// What came of a step, by its kind.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "did", rename_all = "snake_case")]
pub(super) enum Came {
    /// A delivery was posted.
    Delivered(Answered),
    /// A session was opened.
    Opened(Woken),
    /// A session was closed.
    Closed(Woken),
}

impl Came {
    /// What must come of `step`.
    fn expected(step: &Step) -> Self {
        match step {
            Step::Deliver(deliver) => Self::Delivered(deliver.expect.clone()),
            Step::OpenSession(open) => Self::Opened(open.expect.clone()),
            Step::CloseSession(_) => Self::Closed(Woken::default()),
        }
    }
}

/// The table's columns.
pub(super) struct Layout(Widths<COLUMNS>);

impl Layout {
    /// Columns that fit every step of `demo` if all goes well. So each row can be shown as soon as it is known.
    pub(super) fn of(demo: &[Step]) -> Self {
        let rows = demo
            .iter()
            .map(|step| cells(true, step.name(), &Came::expected(step), step.shows()));
        let rows: Vec<_> = rows.chain([HEAD.map(str::to_owned)]).collect();
        Self(Widths::fitting(&rows))
    }

    /// The line above the rows.
    pub(super) fn head(&self) -> String {
        self.0.line(&HEAD.map(str::to_owned))
    }

    /// A step's row.
    pub(super) fn row<'a>(&'a self, played: &'a Played) -> Row<'a> {
        Row { layout: self, played }
    }
}

/// A row of the table.
#[derive(Serialize)]
#[serde(transparent)]
pub(super) struct Row<'a> {
    #[serde(skip)]
    layout: &'a Layout,
    played: &'a Played,
}

impl fmt::Display for Row<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Played {
            name,
            came,
            shows,
            differences,
            ..
        } = self.played;
        f.write_str(&self.layout.0.line(&cells(differences.is_empty(), name, came, shows)))?;
        for difference in differences {
            write!(f, "\n    {difference}")?;
        }
        Ok(())
    }
}

fn cells(is_as_expected: bool, name: &str, came: &Came, shows: &str) -> [String; COLUMNS] {
    let (name, answer, events, ledger, inboxes) = match came {
        Came::Delivered(Answered {
            status,
            outcome,
            events,
            ledger,
            inboxes,
            ..
        }) => (
            name.to_owned(),
            format!("{status} {outcome}"),
            events.as_slice(),
            ledger,
            inboxes.as_slice(),
        ),
        Came::Opened(woken) => session(name, "opened", woken),
        Came::Closed(woken) => session(name, "closed", woken),
    };
    let joined = |words: &[String]| {
        if words.is_empty() {
            NONE.to_owned()
        } else {
            words.join(" ")
        }
    };
    let mark = if is_as_expected { '✓' } else { '✗' };
    [
        format!("{mark} {name}"),
        answer,
        joined(events),
        ledger.clone().unwrap_or_else(|| NONE.to_owned()),
        joined(inboxes),
        shows.to_owned(),
    ]
}

type SessionCells<'a> = (String, String, &'a [String], &'a Option<String>, &'a [String]);

fn session<'a>(name: &str, answer: &str, woken: &'a Woken) -> SessionCells<'a> {
    let Woken {
        events,
        ledger,
        inboxes,
    } = woken;
    (format!("session {name}"), answer.to_owned(), events, ledger, inboxes)
}

/// What a demonstration comes to.
#[derive(Debug, Default, Serialize)]
pub(super) struct Summary {
    steps: usize,
    deliveries: usize,
    as_expected: usize,
    bodies: usize,
    /// What is wrong with the ledger as a whole.
    pub(super) ledger: Vec<String>,
    /// What was found in the logs.
    pub(super) logs: Logs,
}

impl Summary {
    /// Counts one step in.
    pub(super) fn add(&mut self, played: &Played) {
        self.steps += 1;
        self.as_expected += usize::from(played.differences.is_empty());
        if let Came::Delivered(answered) = &played.came {
            self.deliveries += 1;
            self.bodies += usize::from(answered.ledger.is_some());
        }
    }

    /// Deliveries that were posted.
    pub(super) fn deliveries(&self) -> usize {
        self.deliveries
    }

    /// Whether everything is as it must be.
    pub(super) fn is_as_expected(&self) -> bool {
        self.as_expected == self.steps && self.ledger.is_empty() && self.logs.problems.is_empty()
    }

    /// The whole in a few words.
    pub(super) fn verdict(&self) -> String {
        let mut verdict = format!("{} of {} steps as expected", self.as_expected, self.steps);
        if !self.ledger.is_empty() {
            verdict.push_str(", the ledger is not");
        }
        if !self.logs.problems.is_empty() {
            verdict.push_str(", the logs are not clean");
        }
        verdict
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            deliveries,
            bodies,
            ledger,
            logs,
            ..
        } = self;
        writeln!(
            f,
            "\n{}: {deliveries} deliveries; {bodies} times the kept body was read back, byte for byte",
            self.verdict()
        )?;
        for problem in ledger {
            writeln!(f, "✗ {problem}")?;
        }
        let clean = if logs.problems.is_empty() {
            "logs clean"
        } else {
            "✗ logs not clean"
        };
        write!(
            f,
            "{clean}: {} lines at debug level, {} secrets, signatures and texts looked for",
            logs.lines, logs.looked_for
        )?;
        for problem in &logs.problems {
            write!(f, "\n    {problem}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::manifest::Manifest;

    /// Widest table that an ordinary terminal shows without breaking its lines.
    const TERMINAL_COLUMNS: usize = 120;

    fn demo() -> Vec<Step> {
        let events = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../events");
        Manifest::read(&events).unwrap().demo
    }

    fn played(step: &Step, differences: &[&str]) -> Played {
        Played {
            step: 1,
            name: step.name().to_owned(),
            came: Came::expected(step),
            shows: step.shows().to_owned(),
            differences: differences.iter().map(|&difference| difference.to_owned()).collect(),
        }
    }

    fn refused() -> Step {
        demo()
            .into_iter()
            .find(|step| step.name() == "pull_request_forged")
            .unwrap()
    }

    #[test]
    fn the_table_fits_a_terminal() {
        let demo = demo();
        let layout = Layout::of(&demo);
        let rows = demo.iter().map(|step| layout.row(&played(step, &[])).to_string());
        for line in rows.chain([layout.head()]) {
            assert!(line.chars().count() <= TERMINAL_COLUMNS, "{line}");
        }
    }

    #[test]
    fn a_row_says_what_was_answered_and_what_came_of_it() {
        let step = refused();
        let layout = Layout::of(std::slice::from_ref(&step));
        assert_eq!(
            layout.row(&played(&step, &["status: 202, expected 401"])).to_string(),
            "✗ pull_request_forged  401 refused  –       –       –      forged: refused, and no trace\n    \
             status: 202, expected 401"
        );
    }

    #[test]
    fn programs_get_one_object_with_all_of_it() {
        let step = refused();
        let layout = Layout::of(std::slice::from_ref(&step));
        let row = serde_json::to_value(layout.row(&played(&step, &[]))).unwrap();
        assert_eq!(
            row,
            serde_json::json!({
                "step": 1, "name": "pull_request_forged", "did": "delivered", "status": 401, "outcome": "refused",
                "refusal": "bad_signature", "events": [], "inboxes": [], "shows": "forged: refused, and no trace",
                "differences": [],
            })
        );
    }

    #[test]
    fn one_difference_or_one_problem_spoils_the_whole() {
        let step = refused();
        let mut summary = Summary::default();
        summary.add(&played(&step, &[]));
        assert!(summary.is_as_expected());
        summary
            .logs
            .problems
            .push("log line 1 contains the webhook secret".to_owned());
        assert!(!summary.is_as_expected());
        summary.logs = Logs::default();
        summary.add(&played(&step, &["status: 202, expected 401"]));
        assert_eq!(summary.verdict(), "1 of 2 steps as expected");
        assert!(!summary.is_as_expected());
    }
}
