//! What happens, how it is told, and what must come of it.

use std::collections::BTreeSet;

use forebay_aws::clock::System;
use forebay_core::event::{EventId, Net};
use forebay_core::ports::TimeAndChance as _;
use jiff::{SignedDuration, Timestamp};

use crate::chance::Chance;
use crate::github::{Hooked, Occasion, Outcome, Shared, What, lock};

/// The repositories, and the agent of each.
pub(super) const REPOSITORIES: [(&str, &str); 3] = [
    ("acme/app", "builder"),
    ("acme/lib", "reviewer"),
    ("acme/site", "builder"),
];
/// How long ago the last thing happened: long enough for recovery to call a delivery missing.
const AGO: SignedDuration = SignedDuration::from_secs(300);
/// Between two happenings. All of them lie within what recovery reads again, since the poller has looked before they are there:
/// GitHub's own log shows nothing that long after it was made.
const APART: SignedDuration = SignedDuration::from_millis(250);
/// How much later than it is told of something late can be seen.
const LATE: SignedDuration = SignedDuration::from_secs(30);
/// Of a hundred happenings the webhook is out of order for these.
const OUTAGE: std::ops::Range<usize> = 40..60;

/// An event that must be in the ledger.
#[derive(Clone, Debug)]
pub(super) struct Expected {
    pub(super) id: EventId,
    pub(super) seen_by: BTreeSet<Net>,
    pub(super) inboxes: BTreeSet<String>,
}

/// What has happened so far.
pub(super) struct Plan {
    chance: Chance,
    begins_at: Timestamp,
    /// Open and closed pull requests and issues, by repository.
    pulls: [Vec<u64>; 3],
    issues: [Vec<u64>; 3],
    runs: [Vec<u64>; 3],
    /// What was closed in which second, by repository.
    closed: BTreeSet<(usize, u64, i64)>,
    pub(super) expected: Vec<Expected>,
}

impl Plan {
    /// A plan of so many happenings, the last of them some minutes ago.
    pub(super) fn new(happenings: usize, chance: &mut Chance) -> Self {
        let span = AGO.saturating_add(APART.saturating_mul(i32::try_from(happenings).unwrap_or(0)));
        Self {
            chance: Chance::new(chance.next()),
            begins_at: System.now().saturating_sub(span).unwrap_or(Timestamp::MIN),
            pulls: Default::default(),
            issues: Default::default(),
            runs: Default::default(),
            closed: BTreeSet::new(),
            expected: Vec::new(),
        }
    }

    /// Lets the next thing happen.
    pub(super) fn happen(&mut self, number: usize, fake: &Shared) {
        let place = self.chance.below(REPOSITORIES.len());
        let (repository, agent) = REPOSITORIES[place];
        let at = self.begins_at + APART.saturating_mul(i32::try_from(number).unwrap_or(0));
        let what = self.what(number, place);
        if let What::Closed { number: closed } = what
            && !self.closed.insert((place, closed, at.as_second()))
        {
            // Twice in one second would be one event by its id.
            return self.happen(number, fake);
        }
        let is_fed = !matches!(what, What::Push { .. });
        let hooked = self.hooked(number, is_fed);
        let is_hooked = hooked != Hooked::Silent;
        let shown_after = match self.chance.below(100) {
            0..12 if is_hooked => None,
            // A list of runs shows the last attempt alone: one that comes late behind another is never seen.
            12..27 if !matches!(what, What::Run { .. } | What::Rerun { .. }) => {
                Some(System.now().duration_since(at).saturating_add(LATE))
            }
            _ => Some(SignedDuration::ZERO),
        };
        let occasion = Occasion::of(repository, what.clone())
            .by(["dev1", "dev2", "bot"][self.chance.below(3)])
            .hooked(hooked.clone())
            .shown_after(shown_after);
        let Ok(happening) = lock(fake).happen(&occasion, at) else {
            // What is closed cannot be closed again: something else happens.
            return self.happen(number, fake);
        };
        self.remember(place, &what, happening.number, happening.id);
        let Some(id) = happening.event_id() else { return };
        let nets = [
            (Net::Webhook, hooked == Hooked::Delivered),
            (Net::Recovery, matches!(hooked, Hooked::Lost(_))),
            (Net::Feed, is_fed && shown_after.is_some()),
        ];
        let mut inboxes = BTreeSet::new();
        if is_fed {
            inboxes.insert(agent.to_owned());
        }
        if let What::Merged { .. } = what {
            inboxes.insert("dispatcher".to_owned());
        }
        if let What::Release { .. } = what {
            inboxes.insert("notice".to_owned());
        }
        self.expected.push(Expected {
            id: EventId::new(id),
            seen_by: nets.into_iter().filter(|(_, sees)| *sees).map(|(net, _)| net).collect(),
            inboxes,
        });
    }

    fn hooked(&mut self, number: usize, is_fed: bool) -> Hooked {
        if OUTAGE.contains(&(number % 100)) {
            return Hooked::Lost(if self.chance.percent(50) {
                Outcome::answered(503)
            } else {
                Outcome::timed_out()
            });
        }
        // No log shows it either: only a feed can know.
        if is_fed && self.chance.percent(8) {
            Hooked::Silent
        } else {
            Hooked::Delivered
        }
    }

    fn what(&mut self, number: usize, place: usize) -> What {
        let pull = self.one_of(|plan| &plan.pulls[place]);
        let issue = self.one_of(|plan| &plan.issues[place]);
        let run = self.one_of(|plan| &plan.runs[place]);
        let text = format!("please look at {number}");
        match (self.chance.below(100), pull, issue, run) {
            (0..30, Some(number), ..) => What::Comment { number, text },
            (30..40, _, Some(number), _) => What::Comment { number, text },
            (40..50, Some(number), ..) => What::Review {
                number,
                state: "changes_requested".to_owned(),
            },
            (50..58, Some(number), ..) => What::ReviewComment { number, text },
            (58..62, Some(number), ..) => What::Closed { number },
            (62..65, _, Some(number), _) => What::Closed { number },
            (65..68, Some(number), ..) => What::Merged { number },
            (68..72, Some(number), ..) => What::Reopened { number },
            (72..75, ..) => What::Release {
                tag: format!("v1.{number}"),
            },
            (75..80, .., Some(run)) => What::Rerun {
                run,
                conclusion: self.conclusion(),
            },
            (80..85, ..) => What::Run {
                branch: "main".to_owned(),
                conclusion: self.conclusion(),
            },
            (85..89, ..) => What::Push {
                branch: "main".to_owned(),
            },
            (89..93, ..) => What::Issue {
                title: format!("issue of {number}"),
            },
            _ => What::pull_request(&format!("fix/{number}")),
        }
    }

    fn conclusion(&mut self) -> String {
        let conclusions = ["failure", "timed_out", "success"];
        conclusions[self.chance.below(conclusions.len())].to_owned()
    }

    fn one_of(&mut self, from: impl Fn(&Self) -> &Vec<u64>) -> Option<u64> {
        let count = from(self).len();
        let chosen = self.chance.below(count.max(1));
        from(self).get(chosen).copied()
    }

    fn remember(&mut self, place: usize, what: &What, number: Option<u64>, id: u64) {
        if let What::PullRequest { .. } = what {
            self.pulls[place].extend(number);
        }
        if let What::Issue { .. } = what {
            self.issues[place].extend(number);
        }
        if let What::Run { .. } = what {
            self.runs[place].push(id);
        }
    }
}
