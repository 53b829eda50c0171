//! What the unit tests share: one time, one pull request, and a way to call the ports without a runtime.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use jiff::{SignedDuration, Timestamp};

use crate::delivery::{Delivery, DeliveryKey, Digest, EventName, Outcome};
use crate::event::{Event, EventId, Kind, Net, Repository, Subject};
use crate::session::{AgentName, Phase, Session, SessionId};

/// The second that [`at`] counts from.
const T: i64 = 1_767_323_045;

/// The instant `seconds` after the tests' own zero.
pub(crate) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(T.saturating_add(seconds)).unwrap()
}

pub(crate) fn secs(seconds: i64) -> SignedDuration {
    SignedDuration::from_secs(seconds)
}

pub(crate) fn days(days: i64) -> SignedDuration {
    SignedDuration::from_hours(days.saturating_mul(24))
}

/// What `future` gives. The ports of these tests never wait, so that one look is enough.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let mut context = Context::from_waker(Waker::noop());
    match pin!(future).poll(&mut context) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("a port in memory waited"),
    }
}

pub(crate) fn repository(name: &str) -> Repository {
    Repository::new(name).unwrap()
}

/// An event about pull request 12 of `acme/app`, one minute old, told by nobody in particular.
pub(crate) fn event(kind: Kind) -> Event {
    Event {
        id: EventId::new(&format!("github/{kind}/1")),
        kind,
        cloud_type: format!("com.github.{kind}"),
        cloud_source: "https://github.com/acme/app".to_owned(),
        cloud_subject: "12".to_owned(),
        subject: Subject::PullRequest {
            repository: repository("acme/app"),
            number: 12,
        },
        pull_requests: vec![12],
        actor: Some("dev1".to_owned()),
        url: None,
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

/// Delivery `guid` of hook 42, which means `outcome`.
pub(crate) fn delivery(guid: &str, body: &[u8], outcome: Outcome) -> Delivery {
    Delivery {
        key: DeliveryKey::parse(&format!("42/{guid}")).unwrap(),
        event_name: EventName::parse("issue_comment").unwrap(),
        action: Some("created".to_owned()),
        headers: Vec::new(),
        digest: Digest::of(body),
        size: body.len() as u64,
        verified_by: "1".to_owned(),
        net: Net::Webhook,
        outcome,
        received_at: at(0),
    }
}

/// A running session of `agent` for `acme/app`, live for an hour from [`at`] zero.
pub(crate) fn session(id: &str, agent: &str, branch: Option<&str>, pull: Option<u64>) -> Session {
    Session {
        id: SessionId::parse(id).unwrap(),
        agent: AgentName::parse(agent).unwrap(),
        repository: repository("acme/app"),
        branch: branch.map(str::to_owned),
        pull,
        phase: Phase::Running,
        opened_at: at(0),
        live_until: at(3_600),
    }
}
