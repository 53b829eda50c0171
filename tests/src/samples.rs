//! One comment on one pull request, and what a ledger can be asked about it. Tests change what they are about.

use std::collections::BTreeMap;

use forebay_aws::dynamodb::DynamoLedger;
use forebay_core::delivery::{Delivery, DeliveryKey, Digest, EventName, Outcome};
use forebay_core::event::{Event, EventId, Kind, Net, Repository, Subject};
use forebay_core::ledger::{
    Admission, Admitted, Admittee, Cause, Claim, Ending, Lease, Nonce, Reason, Sent, Settlement, State, Status, Term,
    Token,
};
use forebay_core::ports::{Ledger, LedgerError};
use forebay_core::session::{AgentName, OwnerKey, Phase, Session, SessionId};
use jiff::{SignedDuration, Timestamp};

/// The lease of every claim.
pub const LEASE: SignedDuration = SignedDuration::from_secs(30);
/// The skew of every claim.
pub const SKEW: SignedDuration = SignedDuration::from_secs(5);
/// How long deliveries and settled events are kept.
pub const RETENTION: SignedDuration = SignedDuration::from_hours(38 * 24);
/// The body of a delivery that is about something else.
pub const BODY: &[u8] = b"{\"a\": 1}";

/// The instant `seconds` after 2026-01-02T03:04:05Z.
#[must_use]
pub fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_767_323_045 + seconds).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// A span of whole seconds.
#[must_use]
pub fn secs(seconds: i64) -> SignedDuration {
    SignedDuration::from_secs(seconds)
}

/// `acme/app`.
///
/// # Panics
/// Never: the name has the form of a repository's.
#[must_use]
pub fn repository() -> Repository {
    Repository::new("acme/app").expect("an owner and a name")
}

/// Pull request `number` of `acme/app`.
#[must_use]
pub fn pull(number: u64) -> OwnerKey {
    OwnerKey::pull(&repository(), number)
}

/// A branch of `acme/app`.
#[must_use]
pub fn branch(name: &str) -> OwnerKey {
    OwnerKey::branch(&repository(), name)
}

/// A comment on pull request 12, one minute old.
#[must_use]
pub fn event(id: &str) -> Event {
    Event {
        id: EventId::new(id),
        kind: Kind::Comment,
        cloud_type: "com.github.issue_comment.created".to_owned(),
        cloud_source: "https://github.com/acme/app".to_owned(),
        cloud_subject: "12".to_owned(),
        subject: Subject::PullRequest {
            repository: repository(),
            number: 12,
        },
        pull_requests: vec![12],
        actor: Some("dev1".to_owned()),
        url: Some("https://github.com/acme/app/pull/12#issuecomment-7".to_owned()),
        summary: "please look".to_owned(),
        branch: None,
        base: None,
        head_sha: None,
        conclusion: None,
        occurred_at: Some(at(-60)),
        delivery: None,
        content: None,
    }
}

/// A delivery with [`BODY`].
///
/// # Panics
/// Where `key` is none.
#[must_use]
pub fn delivery(key: &str, outcome: Outcome) -> Delivery {
    Delivery {
        key: DeliveryKey::parse(key).expect("a delivery's key"),
        event_name: EventName::parse("issue_comment").expect("an event's name"),
        action: Some("created".to_owned()),
        headers: vec![("user-agent".to_owned(), "GitHub-Hookshot/1".to_owned())],
        digest: Digest::of(BODY),
        size: BODY.len() as u64,
        verified_by: "1".to_owned(),
        net: Net::Webhook,
        outcome,
        received_at: at(0),
    }
}

/// A delivery that means event `id`.
#[must_use]
pub fn accepted(key: &str, id: &str) -> Delivery {
    delivery(key, Outcome::Accepted(EventId::new(id)))
}

/// `delivery` with another body.
#[must_use]
pub fn with_body(delivery: Delivery, body: &[u8]) -> Delivery {
    Delivery {
        digest: Digest::of(body),
        size: body.len() as u64,
        ..delivery
    }
}

/// `event`, claimed for the first time at `now`.
#[must_use]
pub fn claimed(event: Event, nonce: u64, now: Timestamp) -> Admittee {
    let state = State {
        status: Status::Claimed,
        reason: None,
        token: Token::FIRST,
        nonce: Nonce::from_random(nonce),
        lease_until: Some(now + LEASE),
        failures: 1,
        tries: 0,
        due_at: Some(now + LEASE + SKEW),
        waiting_for: None,
        destinations: BTreeMap::new(),
        generation: 0,
        expires_at: None,
    };
    Admittee { event, state }
}

/// `delivery` with `body`, and its event claimed where it means one.
#[must_use]
pub fn admission<'a>(delivery: &'a Delivery, body: &'a [u8], nonce: u64) -> Admission<'a> {
    let now = delivery.received_at;
    let event = match &delivery.outcome {
        Outcome::Accepted(id) => Some(claimed(event(id.as_str()), nonce, now)),
        Outcome::Ignored(_) | Outcome::Malformed(_) => None,
    };
    Admission {
        delivery,
        body,
        event,
        nonce: Nonce::from_random(nonce),
        expires_at: now + RETENTION,
    }
}

/// Admits `delivery` with [`BODY`].
///
/// # Errors
/// As [`Ledger::admit`].
pub async fn admit(ledger: &impl Ledger, delivery: &Delivery, nonce: u64) -> Result<Admitted, LedgerError> {
    ledger.admit(&admission(delivery, BODY, nonce)).await
}

/// Admits event `id` by a delivery of its own, and gives the right to it.
///
/// # Panics
/// Where the ledger had it already, or failed.
#[expect(clippy::panic, reason = "without its event a test has nothing to say")]
pub async fn admit_event(ledger: &impl Ledger, id: &str, nonce: u64) -> Lease {
    let delivery = accepted(&format!("42/{}", guid_of(id)), id);
    match admit(ledger, &delivery, nonce).await {
        Ok(Admitted::Created { lease: Some(lease) }) => lease,
        other => panic!("{other:?}"),
    }
}

/// A GUID of its own for each event.
#[must_use]
pub fn guid_of(id: &str) -> String {
    Digest::of(id.as_bytes()).to_string()
}

/// A claim of a due event.
#[must_use]
pub fn claim(now: Timestamp, nonce: u64) -> Claim {
    Claim {
        now,
        nonce: Nonce::from_random(nonce),
        lease: LEASE,
        skew: SKEW,
        cause: Cause::Due,
    }
}

/// A claim of an event whose owner has appeared.
#[must_use]
pub fn claim_for_owner(now: Timestamp, nonce: u64) -> Claim {
    Claim {
        cause: Cause::OwnerAppeared,
        ..claim(now, nonce)
    }
}

/// What owners renew for.
pub const TERM: Term = Term {
    lease: LEASE,
    skew: SKEW,
};

/// The same right once more: an owner that does not know it has lost it.
///
/// # Panics
/// Never: the state that it is made from is claimed.
#[must_use]
pub fn copy_of(lease: &Lease) -> Lease {
    let mut state = claimed(event("any"), lease.nonce().number(), at(0)).state;
    state.token = lease.token();
    state.lease_until = Some(lease.until());
    Lease::proven_by(lease.event(), &state, lease.nonce()).expect("a claimed state of this nonce")
}

/// Every destination has it.
#[must_use]
pub fn processed(now: Timestamp) -> Settlement {
    Settlement {
        ending: Ending::Processed,
        reason: Reason::Delivered,
        failures: 0,
        tries: 0,
        due_at: None,
        waiting_for: None,
        destinations: BTreeMap::from([("reviewer".to_owned(), Sent::Yes)]),
        expires_at: Some(now + RETENTION),
    }
}

/// Its handling failed once; due again at `due_at`.
#[must_use]
pub fn failed(due_at: Timestamp) -> Settlement {
    Settlement {
        ending: Ending::FailedRetryable,
        reason: Reason::Failed,
        failures: 1,
        tries: 1,
        due_at: Some(due_at),
        waiting_for: None,
        destinations: BTreeMap::from([("reviewer".to_owned(), Sent::Rejected)]),
        expires_at: None,
    }
}

/// Given up.
#[must_use]
pub fn given_up(now: Timestamp) -> Settlement {
    Settlement {
        ending: Ending::FailedPermanent,
        reason: Reason::TooManyFailures,
        failures: 8,
        ..processed(now)
    }
}

/// It waits for the owner of `key`; looked at again at `due_at`.
#[must_use]
pub fn parked(key: OwnerKey, due_at: Timestamp) -> Settlement {
    Settlement {
        ending: Ending::Parked,
        reason: Reason::Waiting,
        failures: 0,
        tries: 1,
        due_at: Some(due_at),
        waiting_for: Some(key),
        destinations: BTreeMap::new(),
        expires_at: None,
    }
}

/// A running session of `reviewer` for `acme/app`, live for an hour from [`at`] zero.
///
/// # Panics
/// Where `id` is none.
#[must_use]
pub fn session(id: &str, branch: Option<&str>, pull: Option<u64>) -> Session {
    Session {
        id: SessionId::parse(id).expect("a session's id"),
        agent: AgentName::parse("reviewer").expect("an agent's name"),
        repository: repository(),
        branch: branch.map(str::to_owned),
        pull,
        phase: Phase::Running,
        opened_at: at(0),
        live_until: at(3_600),
    }
}

/// A ledger in DynamoDB that nothing answers: for scripted clients.
#[must_use]
pub fn ledger_on(client: aws_sdk_dynamodb::Client) -> DynamoLedger {
    DynamoLedger::new(client, crate::table::TABLE)
}
