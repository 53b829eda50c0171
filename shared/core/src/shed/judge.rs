//! The states of a target, and the one function that says what follows from what is known of it.

use jiff::{SignedDuration, Timestamp};

use super::ShedderConfig;
use super::slots::{Observation, SlotNumber, Slots, Window};
use crate::backoff::scramble;
use crate::event::words;
use crate::ledger::{Nonce, Token};

words! {
    /// How a target stands.
    Health {
        /// Everything goes to it.
        Healthy = "healthy",
        /// It is left alone.
        Shed = "shed",
        /// One call is made to it, under a lease of its own.
        Probing = "probing",
        /// It passed its probe: a growing share goes to it, and one error sheds it again.
        Probation = "probation",
    }
}

/// What is stored of how a target stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetState {
    /// How it stands.
    pub health: Health,
    /// Since when. What was counted in slots that had ended by then is of an earlier life.
    pub since: Timestamp,
    /// End of the right to probe, while probing.
    pub lease_until: Option<Timestamp>,
    /// Grows with every change.
    pub token: Token,
    /// A random number of the last change: how whoever made it recognises its own.
    pub nonce: Nonce,
}

impl Default for TargetState {
    /// Where every target begins: healthy since ever, and never written down.
    fn default() -> Self {
        Self {
            health: Health::Healthy,
            since: Timestamp::MIN,
            lease_until: None,
            token: Token::NONE,
            nonce: Nonce::from_random(0),
        }
    }
}

impl TargetState {
    /// The state after this one, under the next token.
    #[must_use]
    pub fn next(&self, health: Health, nonce: Nonce, now: Timestamp, config: &ShedderConfig) -> Self {
        let lease_until = now.saturating_add(config.probe).unwrap_or(Timestamp::MAX);
        Self {
            health,
            since: now,
            lease_until: (health == Health::Probing).then_some(lease_until),
            token: self.token.next(),
            nonce,
        }
    }

    /// The state that an operator sets: healthy from the next slot on, whatever the slots before hold.
    #[must_use]
    pub fn reset(&self, nonce: Nonce, now: Timestamp, config: &ShedderConfig) -> Self {
        self.next(Health::Healthy, nonce, SlotNumber::of(now).ends_at(), config)
    }

    /// Whether both are the same change of one target.
    #[must_use]
    pub fn is_same_as(&self, other: &Self) -> bool {
        self.token == other.token && self.nonce == other.nonce
    }
}

/// The share of what is meant for a target that goes to it, in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share(u16);

impl Share {
    const WHOLE: u16 = 1_000;
    /// Where probation begins: a tenth.
    const FIRST: u16 = 100;

    /// The share after `elapsed` of a probation: it grows from a tenth to all of it.
    fn after(elapsed: SignedDuration, probation: SignedDuration) -> Self {
        let grown = elapsed
            .as_millis()
            .max(0)
            .saturating_mul(i128::from(Self::WHOLE.saturating_sub(Self::FIRST)));
        let grown = grown.checked_div(probation.as_millis()).unwrap_or_default();
        let share = i128::from(Self::FIRST)
            .saturating_add(grown)
            .min(i128::from(Self::WHOLE));
        Self(u16::try_from(share).unwrap_or(Self::WHOLE))
    }

    /// In thousandths.
    #[must_use]
    pub const fn thousandths(self) -> u16 {
        self.0
    }

    /// Whether this share has room for whoever drew the random number `chance`.
    #[must_use]
    pub fn admits(self, chance: u64) -> bool {
        // Whoever draws in turns draws evenly all the same. The upper half of the number, scaled to thousandths.
        let drawn = (scramble(chance) >> 32).saturating_mul(u64::from(Self::WHOLE)) >> 32;
        drawn < u64::from(self.0)
    }
}

/// What follows from what is known of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// It gets what is meant for it.
    Open,
    /// It gets this share of it.
    Ramp(Share),
    /// It gets nothing.
    Shed,
    /// It should stand like this from now on. Who writes that down first has decided; for [`Health::Probing`] the right to
    /// probe comes with it.
    Change(Health),
}

/// What follows from a target's state and counts at `now`. Total: it answers for any of them, and asks no clock.
#[must_use]
pub fn judge(state: &TargetState, slots: &Slots, now: Timestamp, config: &ShedderConfig) -> Judgement {
    let since_change = now.duration_since(state.since);
    match state.health {
        Health::Healthy => {
            if Window::at(now, config).since(state.since).over(slots).is_bad(config) {
                Judgement::Change(Health::Shed)
            } else {
                Judgement::Open
            }
        }
        Health::Shed => {
            // An error counts until the end of its slot, so that the target is clean for no shorter than it must be.
            let last_error = slots.last_error(SlotNumber::of(state.since), now, config);
            let clean_since = last_error.map_or(state.since, |slot| slot.ends_at().max(state.since));
            if now.duration_since(clean_since) >= config.clean {
                Judgement::Change(Health::Probing)
            } else {
                Judgement::Shed
            }
        }
        Health::Probing => {
            let lapsed = state
                .lease_until
                .is_none_or(|until| now.duration_since(until) > config.skew);
            if lapsed {
                Judgement::Change(Health::Probing)
            } else {
                Judgement::Shed
            }
        }
        Health::Probation => {
            let failed = slots.last_error(SlotNumber::of(state.since), now, config).is_some();
            if failed || Window::at(now, config).since(state.since).over(slots).is_bad(config) {
                Judgement::Change(Health::Shed)
            } else if since_change >= config.probation {
                Judgement::Change(Health::Healthy)
            } else {
                Judgement::Ramp(Share::after(since_change, config.probation))
            }
        }
    }
}

/// What a probe means for its target. `None` where it saw nothing of the target's health: then its lease lapses, and another
/// may probe.
#[must_use]
pub fn probed(observation: Option<Observation>, config: &ShedderConfig) -> Option<Health> {
    Some(match observation? {
        // As slow as what it was shed for: it would be shed again, with ten victims more.
        Observation::Success(latency) if latency.as_millis() > i128::from(config.latency_ms_max) => Health::Shed,
        Observation::Success(_) => Health::Probation,
        Observation::Error => Health::Shed,
    })
}

#[cfg(test)]
mod tests;
