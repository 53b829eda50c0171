//! A model of the ledger's protocol, walked through exhaustively: every order of every call, every crash, every lost answer
//! within its bounds.
//!
//! The row changes by the core's own [`transition`] and begins as the core's own admission says; what is modelled
//! around it is the world: owners that claim, send, renew and settle, each by its own clock, and a network that delays,
//! repeats and loses their calls and the answers to them. Time is a tick that passes at any moment.
//!
//! **Covered.** One event and one inbox. Two owners, or three, whose clocks differ by the whole of the
//! skew. A crash anywhere, also between a call's way there and its way back. Calls that arrive after their owner has died,
//! or after it has asked again. Answers that are lost, and the same call with the same nonce once more. Leases that lapse
//! while their owner believes in them, or thinks of something else. Renewal. Settling as `processed`, `failed_retryable`
//! and `parked`, and claims because time has come as well as because an owner has appeared.
//!
//! **Not covered.** Anything beyond [`Bounds`]: more ticks, more claims, more calls under way at once. How DynamoDB carries
//! out the rules (the contract and reference tests hold the adapter to the same function). Clocks that are further apart
//! than the skew (`simulate` has them). Routing, several inboxes, the ceiling of failures, age, the row's expiry.

mod world;

use std::collections::BTreeSet;
use std::fmt;
use std::thread;

use forebay_core::ledger::{State, Step, Verdict, transition};
use stateright::{Checker as _, Expectation, HasDiscoveries, Model, Property};

pub use world::{Action, Broken, World};

/// What makes of a row what it becomes.
pub type Rule = fn(Option<&State>, &Step) -> Verdict;

/// How far the model goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Owners.
    pub owners: usize,
    /// Ticks of the clock, four seconds each.
    pub ticks: u8,
    /// Claims and admissions in all.
    pub claims: u8,
    /// Renewals in all.
    pub renewals: u8,
    /// Calls that an owner sends once more, in all.
    pub repeats: u8,
    /// Crashes in all.
    pub crashes: u8,
}

impl Bounds {
    /// One claim, one owner, no trouble: what the walks below widen, each in its own directions.
    const NARROW: Self = Self {
        owners: 2,
        ticks: 5,
        claims: 2,
        renewals: 0,
        repeats: 0,
        crashes: 0,
    };
    /// Done in seconds.
    pub const SHORT: [Self; 2] = [
        Self {
            ticks: 4,
            ..Self::NARROW
        },
        Self {
            ticks: 4,
            claims: 1,
            renewals: 1,
            repeats: 1,
            crashes: 1,
            ..Self::NARROW
        },
    ];
    /// Done in less than half a minute on two cores, unoptimised.
    pub const USUAL: [Self; 4] = [
        Self {
            crashes: 1,
            ..Self::NARROW
        },
        Self {
            ticks: 4,
            repeats: 1,
            ..Self::NARROW
        },
        Self {
            renewals: 1,
            ..Self::NARROW
        },
        Self {
            owners: 3,
            ticks: 4,
            crashes: 1,
            ..Self::NARROW
        },
    ];
    /// For an optimised build, some minutes, and some gigabytes of memory.
    pub const DEEP: [Self; 4] = [
        Self {
            claims: 3,
            crashes: 1,
            ..Self::NARROW
        },
        Self {
            repeats: 1,
            crashes: 2,
            ..Self::NARROW
        },
        Self {
            renewals: 2,
            repeats: 1,
            ..Self::NARROW
        },
        Self {
            owners: 3,
            claims: 3,
            ..Self::NARROW
        },
    ];
}

/// The protocol under a rule, within bounds.
#[derive(Clone, Copy, Debug)]
pub struct Protocol {
    /// How far it goes.
    pub bounds: Bounds,
    /// What a step makes of a row.
    pub rule: Rule,
}

/// What a walk through all states found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Distinct states.
    pub states: usize,
    /// What does not hold, each with the shortest way there.
    pub violated: Vec<(&'static str, String)>,
    /// What should happen in some state, and happens in none: then the rest proves little.
    pub unseen: BTreeSet<&'static str>,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (property, path) in &self.violated {
            writeln!(f, "violated: {property}\n{path}")?;
        }
        for property in &self.unseen {
            writeln!(f, "never happened: {property}")?;
        }
        write!(
            f,
            "states {} violated {}",
            self.states,
            self.violated.len() + self.unseen.len()
        )
    }
}

impl Found {
    /// Whether all held, in a model that says something.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.violated.is_empty() && self.unseen.is_empty()
    }
}

impl Protocol {
    /// The core's rules.
    #[must_use]
    pub fn of_core(bounds: Bounds) -> Self {
        Self {
            bounds,
            rule: transition,
        }
    }

    /// Walks through every state that can be reached, or until something does not hold.
    #[must_use]
    pub fn check(self) -> Found {
        let checker = self
            .checker()
            .finish_when(HasDiscoveries::AnyFailures)
            .spawn_bfs()
            .join();
        let mut violated = Vec::new();
        let mut unseen = BTreeSet::new();
        for property in self.properties() {
            let path = checker.discovery(property.name);
            match (property.expectation, path) {
                (Expectation::Always, Some(path)) => {
                    let actions: Vec<_> = path
                        .into_actions()
                        .iter()
                        .map(|action| format!("  {action:?}"))
                        .collect();
                    violated.push((property.name, actions.join("\n")));
                }
                (Expectation::Sometimes, None) => {
                    unseen.insert(property.name);
                }
                (Expectation::Always, None) | (Expectation::Sometimes | Expectation::Eventually, _) => {}
            }
        }
        Found {
            states: checker.unique_state_count(),
            violated,
            unseen,
        }
    }
}

/// Walks through all of these bounds under the core's rules, beside each other, and adds up what was found.
///
/// # Panics
/// Where a walk does.
#[must_use]
pub fn check_all(walks: &[Bounds]) -> Found {
    let found = thread::scope(|scope| {
        let walks: Vec<_> = walks
            .iter()
            .map(|bounds| scope.spawn(|| Protocol::of_core(*bounds).check()))
            .collect();
        walks
            .into_iter()
            .map(|walk| walk.join().expect("a walk ends"))
            .collect::<Vec<_>>()
    });
    let unseen = found.iter().map(|found| found.unseen.clone());
    Found {
        unseen: unseen.reduce(|unseen, more| &unseen & &more).unwrap_or_default(),
        states: found.iter().map(|found| found.states).sum(),
        violated: found.into_iter().flat_map(|found| found.violated).collect(),
    }
}

impl Model for Protocol {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(self.bounds)]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        // What is broken stays broken: the way there is all that counts.
        if world.broken.is_none() {
            world.actions(self.bounds, actions);
        }
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut world = world.clone();
        world.take(action, self.rule);
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            // Invariant 4
            Property::always("tokens only grow", |_, world: &World| {
                world.broken != Some(Broken::TokenWentBack)
            }),
            Property::always("a stale owner changes nothing", |_, world: &World| {
                world.broken != Some(Broken::ChangedByStaleOwner)
            }),
            Property::always("nobody settles under a lease that has ended", |_, world: &World| {
                world.broken != Some(Broken::SettledAfterLease)
            }),
            Property::always("no claim is settled twice", |_, world: &World| {
                world.broken != Some(Broken::SettledTwice)
            }),
            Property::always("a terminal row never changes", |_, world: &World| {
                world.broken != Some(Broken::TerminalChanged)
            }),
            Property::always("at most one owner holds a lease that runs", |_, world: &World| {
                world.live_owners() <= 1
            }),
            // Invariant 3
            Property::always("nothing is sent after its send was recorded", |_, world: &World| {
                world.broken != Some(Broken::SentAgain)
            }),
            Property::always("what is recorded as sent was sent", |_, world: &World| {
                !world.is_recorded() || world.landed > 0
            }),
            // Invariant 5
            Property::always(
                "what is not terminal is due, and then anybody may claim it",
                |_, world: &World| world.broken != Some(Broken::Lost),
            ),
            // A model in which these never happen proves nothing.
            Property::sometimes("an event is processed by the second token", |_, world: &World| {
                world.is_recorded() && world.token() >= 2
            }),
            Property::sometimes("a message is sent twice before it is recorded", |_, world: &World| {
                world.landed >= 2
            }),
            Property::sometimes("a settlement arrives too late", |_, world: &World| {
                world.late_settlement()
            }),
            Property::sometimes("an event is parked", |_, world: &World| world.is_parked()),
        ]
    }
}
