//! What the items of GitHub's feeds mean: the events of a repository, and the runs of its workflows.
//!
//! An item says the same as a webhook in other words, and since October 2025 in fewer
//! (<https://github.blog/changelog/2025-08-08-upcoming-changes-to-github-events-api-payloads/>). It is put into a webhook's
//! words first and read like one, so that a happening has one id and one meaning whoever reports it.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::payload::{Raw, Text, value, view};
use super::time::instant;
use super::{Envelope, Meaning, Named, content, interpret};
use crate::delivery::{Digest, EventName, Ignored};
use crate::event::{Event, Repository};

/// How far apart a stated time of closing and the item that tells of it may be. An item may show how its issue stands now, which
/// is closed for another time.
const CLOSED_APART_MAX: SignedDuration = SignedDuration::from_secs(60);

/// How long before its closing an item may have been written: times are whole seconds.
const WRITTEN_BEFORE_MAX: SignedDuration = SignedDuration::from_secs(1);

/// Longest mark, in bytes. GitHub's longest type has 29 letters, and ids have eleven digits.
const MARK_BYTES_MAX: usize = 80;

/// One item of a feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Tells the item from every other of its feed: ids alone do not, since each type counts for itself. Never empty.
    pub mark: String,
    /// When it happened, as the feed says.
    pub happened_at: Option<Timestamp>,
    /// What it means.
    pub meaning: ItemMeaning,
}

impl Item {
    /// Whether it happened before this second.
    #[must_use]
    pub fn is_before(&self, second: i64) -> bool {
        self.happened_at.is_some_and(|at| at.as_second() < second)
    }
}

/// What an item means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ItemMeaning {
    /// An event, and the pull requests that the item names.
    Event(Box<Event>, Vec<Named>),
    /// Something was closed, and the item does not say when: look for it in the issue's history.
    Closed(Closed),
    /// Nothing that Forebay handles.
    Skipped(Ignored),
    /// It cannot be read.
    Malformed,
}

/// An issue or pull request that was closed, by an item that does not say when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closed {
    /// Where it is.
    pub repository: Repository,
    /// Its number.
    pub number: u64,
    /// About when.
    pub near: Timestamp,
}

/// A page of a feed that cannot be read as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the page is no list of items")]
pub struct NotAPage;

/// The items of a page of `/repos/{owner}/{name}/events`, in its order, each still to be read.
///
/// # Errors
/// [`NotAPage`] where it is none: nothing may be remembered of it.
pub fn events_page(body: &[u8]) -> Result<Vec<Box<RawValue>>, NotAPage> {
    serde_json::from_slice(body).or(Err(NotAPage))
}

/// The same for `/repos/{owner}/{name}/actions/runs`.
///
/// # Errors
/// As [`events_page`].
pub fn runs_page(body: &[u8]) -> Result<Vec<Box<RawValue>>, NotAPage> {
    #[derive(Deserialize)]
    struct Page {
        workflow_runs: Vec<Box<RawValue>>,
    }
    let page: Page = serde_json::from_slice(body).or(Err(NotAPage))?;
    Ok(page.workflow_runs)
}

/// The fields of an object, each still to be read: what nobody reads may hold anything.
type Fields = BTreeMap<String, Box<RawValue>>;

#[derive(Deserialize)]
struct FeedItem<'a> {
    #[serde(borrow)]
    id: Raw<'a>,
    #[serde(borrow, rename = "type")]
    kind: Raw<'a>,
    #[serde(borrow)]
    actor: Raw<'a>,
    #[serde(borrow)]
    repo: Raw<'a>,
    #[serde(borrow)]
    payload: Raw<'a>,
    #[serde(borrow)]
    created_at: Raw<'a>,
}

#[derive(Deserialize)]
struct FeedRepository<'a> {
    #[serde(borrow)]
    id: Raw<'a>,
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(borrow)]
    url: Raw<'a>,
}

/// Reads an item of a repository's events. `closed_at` is what its issue's history says, where that had to be asked.
///
/// Total: whatever the item is, there is an answer, and a mark that tells it from others.
#[must_use]
pub fn event_item(host: Option<&str>, item: &RawValue, closed_at: Option<Timestamp>) -> Item {
    repaired(item, |json| read_event(host, json, closed_at))
}

/// What `read` makes of an item: if nothing, then of the item with a sign in place of each half of a pair, as a webhook is read.
fn repaired(item: &RawValue, read: impl Fn(&str) -> Item) -> Item {
    let json = item.get();
    let first = read(json);
    if first.meaning != ItemMeaning::Malformed {
        return first;
    }
    content::repair(json).map_or(first, |json| read(&json))
}

fn read_event(host: Option<&str>, json: &str, closed_at: Option<Timestamp>) -> Item {
    let Ok(item) = serde_json::from_str::<FeedItem<'_>>(json) else {
        return unreadable(json);
    };
    let (Some(kind), Some(id)) = (text(item.kind), text(item.id)) else {
        return unreadable(json);
    };
    let mark = mark_of(&kind, &id);
    let happened_at = text(item.created_at).as_deref().and_then(instant);
    let unread = |mark: String, meaning| Item {
        mark,
        happened_at,
        meaning,
    };
    let Some(name) = event_name(&kind) else {
        return unread(mark, ItemMeaning::Skipped(Ignored::UnknownEvent));
    };
    let (Ok(Some(mut payload)), Ok(Some(repository))) =
        (view::<Fields>(item.payload), view::<FeedRepository<'_>>(item.repo))
    else {
        return unread(mark, ItemMeaning::Malformed);
    };
    let stated = text(payload.get("action").map(AsRef::as_ref)).unwrap_or_default();
    let action = webhook_action(name, &stated);
    let html = format!("https://{}/{}", host.unwrap_or("github.com"), repository.name.as_str());
    if let Some(mut pull) = fields(&payload, "pull_request") {
        if let Some(number) = number(&pull) {
            or_insert(&mut pull, "html_url", &format!("{html}/pull/{number}"));
        }
        if stated == "merged" {
            insert(&mut pull, "merged", &true);
            or_insert(&mut pull, "merged_at", &item.created_at);
        }
        if action == "opened" {
            or_insert(&mut pull, "created_at", &item.created_at);
        }
        insert(&mut payload, "pull_request", &pull);
    }
    if action == "closed"
        && let Some(mut object) = fields(&payload, object_of(name))
        && !is_merged(&object)
    {
        match closed_at.or_else(|| stated_close(&object, happened_at)) {
            Some(at) => {
                insert(&mut object, "closed_at", &at.to_string());
                insert(&mut payload, object_of(name), &object);
            }
            None => {
                let closed = Repository::new(repository.name.as_str())
                    .zip(number(&object))
                    .zip(happened_at);
                let meaning = closed.map_or(
                    ItemMeaning::Skipped(Ignored::Incomplete),
                    |((repository, number), near)| {
                        ItemMeaning::Closed(Closed {
                            repository,
                            number,
                            near,
                        })
                    },
                );
                return unread(mark, meaning);
            }
        }
    }
    insert(&mut payload, "action", &action);
    let mut home = Fields::new();
    insert(&mut home, "id", &repository.id);
    insert(&mut home, "full_name", &repository.name.as_str());
    insert(&mut home, "url", &repository.url);
    insert(&mut home, "html_url", &html);
    insert(&mut payload, "repository", &home);
    insert(&mut payload, "sender", &item.actor);
    unread(mark, meaning(host, name, &payload, happened_at))
}

/// An item of which not even the name can be read. It is told from others by its bytes, so that it is met once and counted once.
fn unreadable(json: &str) -> Item {
    Item {
        mark: Digest::of(json.as_bytes()).to_string(),
        happened_at: None,
        meaning: ItemMeaning::Malformed,
    }
}

/// The text that `raw` holds, if it does.
fn text(raw: Raw<'_>) -> Option<String> {
    value::<Text<'_>>(raw).ok()?.map(|text| text.as_str().to_owned())
}

/// The fields of the object that is held under this name.
fn fields(object: &Fields, name: &str) -> Option<Fields> {
    view(object.get(name).map(AsRef::as_ref)).ok()?
}

fn number(object: &Fields) -> Option<u64> {
    value(object.get("number").map(AsRef::as_ref)).ok()?
}

fn insert(object: &mut Fields, name: &str, value: &impl Serialize) {
    // Texts, numbers and raw values are all that is given here: each can be written.
    if let Ok(value) = serde_json::value::to_raw_value(value) {
        object.insert(name.to_owned(), value);
    }
}

fn or_insert(object: &mut Fields, name: &str, value: &impl Serialize) {
    if object.get(name).is_none_or(|known| known.get() == "null") {
        insert(object, name, value);
    }
}

/// The mark of an item; an over-long one is replaced by its digest, since marks are kept by the hundred.
fn mark_of(kind: &str, id: &str) -> String {
    let mark = format!("{kind}:{id}");
    if mark.len() <= MARK_BYTES_MAX {
        mark
    } else {
        Digest::of(mark.as_bytes()).to_string()
    }
}

#[derive(Deserialize)]
struct RunItem<'a> {
    id: u64,
    run_attempt: Option<u64>,
    #[serde(borrow)]
    status: Raw<'a>,
    #[serde(borrow)]
    updated_at: Raw<'a>,
    #[serde(borrow)]
    repository: Raw<'a>,
    #[serde(borrow)]
    triggering_actor: Raw<'a>,
    #[serde(borrow)]
    actor: Raw<'a>,
}

/// Which attempt of which run an item of the runs is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The run.
    pub run: u64,
    /// The attempt, from 1.
    pub attempt: u64,
}

impl Attempt {
    /// The mark of its item.
    #[must_use]
    pub fn mark(&self) -> String {
        format!("{}:{}", self.run, self.attempt)
    }

    /// Which attempt `item` is.
    #[must_use]
    pub fn of(item: &RawValue) -> Option<Self> {
        let run = serde_json::from_str::<RunItem<'_>>(item.get()).ok()?;
        Some(Self {
            run: run.id,
            attempt: run.run_attempt?,
        })
    }
}

/// Reads an item of a repository's workflow runs: an event where the attempt ended badly.
#[must_use]
pub fn run_item(host: Option<&str>, item: &RawValue) -> Item {
    repaired(item, |json| read_run(host, json))
}

fn read_run(host: Option<&str>, json: &str) -> Item {
    let Ok(run) = serde_json::from_str::<RunItem<'_>>(json) else {
        return unreadable(json);
    };
    let (Some(attempt), Ok(whole)) = (run.run_attempt, serde_json::from_str::<&RawValue>(json)) else {
        return unreadable(json);
    };
    let mark = Attempt { run: run.id, attempt }.mark();
    let is_over = text(run.status).as_deref() == Some("completed");
    // That it has been seen says nothing of how it will end.
    let mark = if is_over { mark } else { format!("{mark}:open") };
    let mut payload = Fields::new();
    insert(
        &mut payload,
        "action",
        &if is_over { "completed" } else { "in_progress" },
    );
    insert(&mut payload, "repository", &run.repository);
    insert(&mut payload, "sender", &run.triggering_actor.or(run.actor));
    insert(&mut payload, "workflow_run", &whole);
    let happened_at = text(run.updated_at).as_deref().and_then(instant);
    Item {
        mark,
        happened_at,
        meaning: meaning(host, "workflow_run", &payload, happened_at),
    }
}

/// What a webhook of this name with this payload means.
fn meaning(host: Option<&str>, name: &str, payload: &Fields, happened_at: Option<Timestamp>) -> ItemMeaning {
    let (Some(event_name), Ok(json)) = (EventName::parse(name), serde_json::to_string(payload)) else {
        return ItemMeaning::Malformed;
    };
    let envelope = Envelope {
        host,
        key: None,
        event_name: &event_name,
        content_type: None,
    };
    let reading = interpret(&envelope, &json);
    match reading.meaning {
        Meaning::Event(mut event) => {
            event.occurred_at = event.occurred_at.or(happened_at);
            ItemMeaning::Event(event, reading.names)
        }
        Meaning::Ignored(why) => ItemMeaning::Skipped(why),
        Meaning::Malformed(_) => ItemMeaning::Malformed,
    }
}

/// The webhook that reports what an item of this type does. A push has no id that both share: only its webhook counts.
fn event_name(kind: &str) -> Option<&'static str> {
    Some(match kind {
        "PullRequestEvent" => "pull_request",
        "IssueCommentEvent" => "issue_comment",
        "PullRequestReviewEvent" => "pull_request_review",
        "PullRequestReviewCommentEvent" => "pull_request_review_comment",
        "IssuesEvent" => "issues",
        "ReleaseEvent" => "release",
        _ => return None,
    })
}

/// The webhook's action for a feed's.
fn webhook_action(name: &str, action: &str) -> String {
    match (name, action) {
        ("pull_request", "merged") => "closed",
        ("pull_request_review", "created") => "submitted",
        (_, action) => action,
    }
    .to_owned()
}

/// What a webhook of this name closes.
fn object_of(name: &str) -> &'static str {
    match name {
        "pull_request" => "pull_request",
        _ => "issue",
    }
}

fn is_merged(pull: &Fields) -> bool {
    let field = |name: &str| pull.get(name).map(AsRef::as_ref);
    let merged_at = text(field("merged_at")).is_some();
    value(field("merged")).ok().flatten().unwrap_or(merged_at)
}

/// When the object says that it was closed, if that is what the item tells of.
fn stated_close(object: &Fields, happened_at: Option<Timestamp>) -> Option<Timestamp> {
    let at = instant(&text(object.get("closed_at").map(AsRef::as_ref))?)?;
    let is_this_time = happened_at.is_none_or(|happened| at.duration_since(happened).abs() <= CLOSED_APART_MAX);
    is_this_time.then_some(at)
}

/// What a page of an issue's history says of one closing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Closing {
    /// When it was: the closing that an item of the time that was asked for tells of, if one is near it.
    pub at: Option<Timestamp>,
    /// The page begins before that: what is older is not near.
    pub reaches_back: bool,
}

/// What a page of an issue's history says of its closing about `near`. Another closing is no answer.
///
/// The page is one of `/repos/{owner}/{name}/issues/{number}/events`.
///
/// # Errors
/// [`NotAPage`] where the page is none.
pub fn closed_near(body: &[u8], near: Timestamp) -> Result<Closing, NotAPage> {
    #[derive(Deserialize)]
    struct Entry {
        #[serde(default)]
        event: Option<String>,
        #[serde(default)]
        created_at: Option<String>,
    }
    let entries: Vec<Entry> = serde_json::from_slice(body).or(Err(NotAPage))?;
    let at = |entry: &Entry| instant(entry.created_at.as_deref()?);
    let apart = |at: &Timestamp| at.duration_since(near).abs();
    let closings = entries.iter().filter(|entry| entry.event.as_deref() == Some("closed"));
    let near_ones = closings.filter_map(at).filter(|at| apart(at) <= CLOSED_APART_MAX);
    let oldest = entries.iter().filter_map(at).min();
    Ok(Closing {
        at: told_of(near, near_ones),
        reaches_back: oldest.is_some_and(|oldest| near.duration_since(oldest) > CLOSED_APART_MAX),
    })
}

/// Which of these closings an item of about `near` tells of: the newest until then, since it is written after what it tells of, and
/// only where there is none the next one. The nearest may be the closing that came after a reopening.
pub(crate) fn told_of(near: Timestamp, closings: impl IntoIterator<Item = Timestamp>) -> Option<Timestamp> {
    closings.into_iter().min_by_key(|at| {
        let behind = at.duration_since(near);
        (behind > WRITTEN_BEFORE_MAX, behind.abs())
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::event::{Kind, Subject};

    fn raw(item: &Value) -> Box<RawValue> {
        serde_json::value::to_raw_value(item).unwrap()
    }

    fn read(item: &Value) -> Item {
        event_item(None, &raw(item), None)
    }

    fn event(item: &Value) -> Event {
        match read(item).meaning {
            ItemMeaning::Event(event, _) => *event,
            other @ (ItemMeaning::Closed(_) | ItemMeaning::Skipped(_) | ItemMeaning::Malformed) => panic!("{other:?}"),
        }
    }

    /// A pull request as a feed shows it: five fields.
    fn pull(action: &str, number: u64) -> Value {
        json!({
            "id": "1", "type": "PullRequestEvent", "actor": {"login": "dev1"},
            "repo": {"id": 1, "name": "acme/app", "url": "https://api.github.com/repos/acme/app"},
            "payload": {"action": action, "number": number, "pull_request": {
                "url": format!("https://api.github.com/repos/acme/app/pulls/{number}"), "id": 560_000_001, "number": number,
                "head": {"ref": "f", "sha": "a", "repo": {"id": 1, "name": "app", "url": "u"}},
                "base": {"ref": "main", "sha": "b", "repo": {"id": 1, "name": "app", "url": "u"}}}},
            "created_at": "2026-01-02T03:04:05Z"
        })
    }

    #[test]
    fn a_trimmed_pull_request_is_an_opened_one_with_what_there_is() {
        // FEED-01
        let opened = event(&pull("opened", 8));
        assert_eq!(opened.kind, Kind::PullRequestOpened);
        assert_eq!(opened.id.as_str(), "github/pull_request/560000001/opened");
        assert_eq!(opened.url.as_deref(), Some("https://github.com/acme/app/pull/8"));
        assert_eq!(
            (opened.branch.as_deref(), opened.base.as_deref()),
            (Some("f"), Some("main"))
        );
        assert_eq!(opened.actor.as_deref(), Some("dev1"));
        assert_eq!(opened.occurred_at.unwrap().to_string(), "2026-01-02T03:04:05Z");
        assert_eq!((opened.summary.as_str(), &opened.delivery), ("", &None));
    }

    #[test]
    fn a_merge_is_an_action_of_its_own_and_the_absence_of_its_fields_says_nothing() {
        // FEED-02
        let merged = event(&pull("merged", 8));
        assert_eq!(
            (merged.kind, merged.base.as_deref()),
            (Kind::PullRequestMerged, Some("main"))
        );
        assert_eq!(merged.cloud_type, "com.github.pull_request.closed");
        assert_eq!(merged.occurred_at.unwrap().to_string(), "2026-01-02T03:04:05Z");
        let mut older = pull("closed", 8);
        older["payload"]["pull_request"]["merged"] = json!(true);
        assert_eq!(event(&older).id, merged.id);
    }

    #[test]
    fn a_closed_pull_request_takes_its_time_from_its_history_and_keeps_it() {
        // FEED-02: number 9 is closed, and not merged.
        let item = pull("closed", 9);
        let ItemMeaning::Closed(closed) = read(&item).meaning else {
            panic!("the item does not say when")
        };
        assert_eq!((closed.repository.as_str(), closed.number), ("acme/app", 9));
        let history = json!([
            {"event": "closed", "created_at": "2026-01-02T03:04:03Z"},
            {"event": "reopened", "created_at": "2026-01-02T03:04:05Z"},
            {"event": "closed", "created_at": "2026-01-02T09:00:00Z"}, {"event": "merged"}, {}
        ]);
        let Closing { at, reaches_back } = closed_near(history.to_string().as_bytes(), closed.near).unwrap();
        assert!(!reaches_back, "what is older may be as near");
        assert_eq!(at.unwrap().to_string(), "2026-01-02T03:04:03Z");
        let Item {
            meaning: ItemMeaning::Event(event, names),
            ..
        } = event_item(None, &raw(&item), at)
        else {
            panic!("it says when now")
        };
        assert_eq!(event.kind, Kind::PullRequestClosed);
        assert_eq!(event.id.as_str(), "github/pull_request/560000001/closed/1767323043");
        assert_eq!((names[0].branch.as_str(), names[0].pull), ("f", 9));
        assert_eq!(closed_near(b"{}", closed.near), Err(NotAPage));
        assert_eq!(closed_near(b"[]", closed.near), Ok(Closing::default()));
        let another = br#"[{"event": "closed", "created_at": "2026-01-01T00:00:00Z"}]"#;
        let none = Closing {
            at: None,
            reaches_back: true,
        };
        assert_eq!(closed_near(another, closed.near), Ok(none));
    }

    #[test]
    fn an_item_tells_of_the_last_closing_before_it_and_not_of_a_nearer_one_behind_it() {
        let history = br#"[{"event":"closed","created_at":"2026-01-02T03:04:00Z"},
            {"event":"reopened","created_at":"2026-01-02T03:04:05Z"},
            {"event":"closed","created_at":"2026-01-02T03:04:10Z"}]"#;
        let check = |near: &str, at: &str| {
            let closing = closed_near(history, near.parse().unwrap()).unwrap();
            assert_eq!(closing.at, Some(at.parse().unwrap()), "{near}");
        };
        for near in ["03:04:00", "03:04:02", "03:04:06", "03:04:08", "03:03:59", "03:03:30"] {
            check(&format!("2026-01-02T{near}Z"), "2026-01-02T03:04:00Z");
        }
        for near in ["03:04:09", "03:04:10", "03:04:18", "03:05:05"] {
            check(&format!("2026-01-02T{near}Z"), "2026-01-02T03:04:10Z");
        }
        let none = closed_near(history, "2026-01-02T03:02:59Z".parse().unwrap()).unwrap();
        assert_eq!(none.at, None);
    }

    #[test]
    fn a_stated_time_counts_where_it_is_that_of_this_closing() {
        let mut item = json!({
            "id": "7", "type": "IssuesEvent", "actor": {"login": "dev1"}, "repo": {"id": 1, "name": "acme/app"},
            "payload": {"action": "closed", "issue": {"id": 70, "number": 7, "title": "t", "user": {"login": "dev2"},
                "closed_at": "2026-01-02T03:04:04Z"}},
            "created_at": "2026-01-02T03:04:05Z"
        });
        assert_eq!(event(&item).id.as_str(), "github/issue/70/closed/1767323044");
        item["payload"]["issue"]["closed_at"] = json!("2026-01-05T00:00:00Z");
        assert!(
            matches!(read(&item).meaning, ItemMeaning::Closed(_)),
            "it shows a later closing"
        );
    }

    #[test]
    fn a_review_is_created_in_a_feed_and_submitted_in_a_webhook_and_is_one_event() {
        // FEED-04
        let mut item = pull("created", 8);
        item["type"] = json!("PullRequestReviewEvent");
        item["payload"]["review"] = json!({
            "id": 1, "state": "approved", "body": "", "user": {"login": "dev2"}, "submitted_at": "2026-01-02T03:04:00Z"
        });
        let review = event(&item);
        assert_eq!((review.kind, review.id.as_str()), (Kind::Review, "github/review/1"));
        assert_eq!(review.cloud_type, "com.github.pull_request_review.submitted");
        assert_eq!(
            (review.conclusion.as_deref(), review.summary.as_str()),
            (Some("approved"), "approved")
        );
    }

    #[test]
    fn a_comment_has_the_id_that_its_webhook_gives_it() {
        // FEED-05, PAY-04
        let item = json!({
            "id": "77", "type": "IssueCommentEvent", "actor": {"login": "dev1"}, "repo": {"id": 1, "name": "acme/app"},
            "payload": {"action": "created", "issue": {"number": 12, "pull_request": {}},
                "comment": {"id": 900, "body": "please", "user": {"login": "dev2"}}},
            "created_at": "2026-01-02T03:04:05Z"
        });
        let comment = event(&item);
        assert_eq!(comment.id.as_str(), "github/comment/900");
        assert!(matches!(comment.subject, Subject::PullRequest { number: 12, .. }));
        assert_eq!(comment.actor.as_deref(), Some("dev2"));
        assert_eq!(comment.occurred_at, read(&item).happened_at);
        let on_enterprise = event_item(Some("ghe.example"), &raw(&item), None);
        let ItemMeaning::Event(event, _) = on_enterprise.meaning else {
            panic!()
        };
        assert_eq!(event.id.as_str(), "ghe.example/github/comment/900");
    }

    #[test]
    fn an_item_of_no_kind_of_ours_is_skipped_and_one_that_cannot_be_read_fails_alone() {
        // S3-17
        let skipped = |item: Value| matches!(read(&item).meaning, ItemMeaning::Skipped(_));
        for kind in ["PushEvent", "WatchEvent", "SomethingNew"] {
            assert!(
                skipped(json!({"id": "1", "type": kind, "repo": {"name": "a/b"}, "payload": {}})),
                "{kind}"
            );
        }
        assert!(skipped(pull("synchronize", 8)));
        for item in [
            json!({"id": 7, "type": "IssuesEvent"}),
            json!({"id": "7"}),
            json!([]),
            json!(null),
            json!({"id": "7", "type": "IssuesEvent", "payload": []}),
            json!({"id": "7", "type": "IssuesEvent", "repo": {"name": "a/b"}}),
            json!({"id": "7", "type": "IssuesEvent", "repo": {"name": "a/b"}, "payload": {"action": "opened", "issue": 3}}),
        ] {
            assert_eq!(read(&item).meaning, ItemMeaning::Malformed, "{item}");
        }
        assert_eq!(read(&json!({"id": "7", "type": "PushEvent"})).mark, "PushEvent:7");
    }

    /// What webhooks carry in fields that nobody reads, and in texts, besides what every reader of JSON takes.
    fn odd() -> [String; 4] {
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        [r#""cut \ud83d""#.to_owned(), deep, "1e999".to_owned(), "9".repeat(400)]
    }

    fn raw_text(json: &str) -> Box<RawValue> {
        RawValue::from_string(json.to_owned()).unwrap()
    }

    #[test]
    fn an_item_is_read_whatever_its_other_fields_hold_as_a_webhook_is() {
        // PAY-22, PAY-23
        for odd in odd() {
            let item = format!(
                r#"{{"id":"77","type":"IssueCommentEvent","x":{odd},"actor":{{"login":"dev1","x":{odd}}},
                "repo":{{"id":1,"name":"acme/app","x":{odd}}},"org":{odd},
                "payload":{{"action":"created","x":{odd},"issue":{{"number":12,"pull_request":{{}},"x":{odd}}},
                "comment":{{"id":900,"body":"please","x":{odd},"user":{{"login":"dev2"}}}}}},
                "created_at":"2026-01-02T03:04:05Z"}}"#
            );
            let item = event_item(None, &raw_text(&item), None);
            let ItemMeaning::Event(event, _) = item.meaning else {
                panic!("{odd}: {:?}", item.meaning)
            };
            assert_eq!(
                (event.id.as_str(), item.mark.as_str()),
                ("github/comment/900", "IssueCommentEvent:77")
            );
            let run = format!(
                r#"{{"id":1,"run_attempt":2,"display_title":{odd},"name":"ci","status":"completed","conclusion":"failure",
                "head_branch":"f","head_sha":"a","updated_at":"2026-01-02T03:04:05Z","pull_requests":[],
                "head_repository":{{"id":1,"full_name":"acme/app"}},"actor":{{"login":"dev1","x":{odd}}},
                "repository":{{"id":1,"full_name":"acme/app","x":{odd}}}}}"#
            );
            let run = raw_text(&run);
            let item = run_item(None, &run);
            let ItemMeaning::Event(event, _) = item.meaning else {
                panic!("{odd}: {:?}", item.meaning)
            };
            assert_eq!(
                (event.id.as_str(), item.mark.as_str()),
                ("github/run/1/attempt/2", "1:2")
            );
            assert_eq!(
                (event.branch.as_deref(), event.actor.as_deref()),
                (Some("f"), Some("dev1"))
            );
            assert_eq!(Attempt::of(&run), Some(Attempt { run: 1, attempt: 2 }));
        }
    }

    #[test]
    fn a_cut_text_is_read_with_a_sign_in_place_of_what_was_cut() {
        // PAY-22
        let item = r#"{"id":"77","type":"IssueCommentEvent","actor":{"login":"dev1"},"repo":{"id":1,"name":"acme/app"},
            "payload":{"action":"created","issue":{"number":12,"pull_request":{}},
            "comment":{"id":900,"body":"cut \ud83d","user":{"login":"dev2"}}},"created_at":"2026-01-02T03:04:05Z"}"#;
        let ItemMeaning::Event(event, _) = event_item(None, &raw_text(item), None).meaning else {
            panic!("it is a comment")
        };
        assert_eq!(event.summary, "cut \u{fffd}");
        let closing = r#"{"id":"7","type":"IssuesEvent","actor":{"login":"dev1"},"repo":{"id":1,"name":"acme/app"},
            "payload":{"action":"closed","issue":{"id":70,"number":7,"title":"cut \ud83d","user":{"login":"dev2"},
            "closed_at":"2026-01-02T03:04:04Z"}},"created_at":"2026-01-02T03:04:05Z"}"#;
        let ItemMeaning::Event(event, _) = event_item(None, &raw_text(closing), None).meaning else {
            panic!("it is a closing")
        };
        assert_eq!(event.id.as_str(), "github/issue/70/closed/1767323044");
    }

    #[test]
    fn what_cannot_be_read_has_a_mark_of_its_own_all_the_same() {
        let of = |json: &str| event_item(None, &raw_text(json), None);
        let read = [
            of("[]"),
            of("3"),
            of(r#"{"id":7,"type":"IssuesEvent"}"#),
            of(r#"{"id":8,"type":"IssuesEvent"}"#),
            run_item(None, &raw_text(r#"{"id":1}"#)),
        ];
        let marks: std::collections::BTreeSet<&str> = read.iter().map(|item| item.mark.as_str()).collect();
        assert_eq!(marks.len(), read.len(), "{marks:?}");
        assert!(!marks.contains(""));
        assert!(read.iter().all(|item| item.meaning == ItemMeaning::Malformed));
        assert_eq!(of("[]").mark, read[0].mark);
        // What can be read of it is what tells it from others.
        let known = of(r#"{"id":"7","type":"IssuesEvent","repo":5,"payload":{}}"#);
        assert_eq!(
            (known.mark.as_str(), known.meaning),
            ("IssuesEvent:7", ItemMeaning::Malformed)
        );
        let known = of(r#"{"id":"7","type":"IssuesEvent","repo":{"name":"acme/app"},"payload":[],"created_at":5}"#);
        assert_eq!(
            (known.mark.as_str(), known.meaning),
            ("IssuesEvent:7", ItemMeaning::Malformed)
        );
    }

    #[test]
    fn each_attempt_of_a_run_that_ends_badly_is_an_event_and_others_are_none() {
        // FEED-11
        let run = |attempt: u64, conclusion: &str, status: &str| {
            json!({
                "id": 1, "run_attempt": attempt, "name": "ci", "status": status, "conclusion": conclusion, "head_branch": "f",
                "head_sha": "a", "html_url": "https://github.com/acme/app/actions/runs/1", "updated_at": "2026-01-02T03:04:05Z",
                "pull_requests": [], "head_repository": {"id": 1, "full_name": "acme/app"},
                "repository": {"id": 1, "full_name": "acme/app", "url": "https://api.github.com/repos/acme/app"},
                "triggering_actor": {"login": "dev1"}
            })
        };
        let read = |run: &Value| run_item(None, &raw(run));
        for (attempt, conclusion) in [(1, "failure"), (2, "timed_out"), (3, "startup_failure")] {
            let item = read(&run(attempt, conclusion, "completed"));
            assert_eq!(item.mark, format!("1:{attempt}"));
            let ItemMeaning::Event(event, _) = item.meaning else {
                panic!("{conclusion}")
            };
            assert_eq!(event.id.as_str(), format!("github/run/1/attempt/{attempt}"));
            assert_eq!((event.kind, event.branch.as_deref()), (Kind::CheckFailure, Some("f")));
            assert_eq!(event.actor.as_deref(), Some("dev1"));
        }
        // ORD-02: what is not over yet is no failure, whatever else it says.
        for (conclusion, status) in [
            ("success", "completed"),
            ("new_word", "completed"),
            ("failure", "in_progress"),
        ] {
            let item = read(&run(1, conclusion, status));
            assert!(matches!(item.meaning, ItemMeaning::Skipped(_)), "{conclusion} {status}");
            assert_eq!(item.mark == "1:1", status == "completed", "{}", item.mark);
        }
        assert_eq!(read(&json!({"id": 1})).meaning, ItemMeaning::Malformed);
        assert_eq!(
            Attempt::of(&raw(&run(2, "failure", "completed"))),
            Some(Attempt { run: 1, attempt: 2 })
        );
    }

    #[test]
    fn a_page_is_a_list_and_an_objects_members_are_not_its_items() {
        // FEED-13
        assert_eq!(
            events_page(br#"{"message":"Moved Permanently"}"#).unwrap_err(),
            NotAPage
        );
        assert_eq!(events_page(br#"[{"id":"1"},3]"#).unwrap().len(), 2);
        assert_eq!(runs_page(br#"{"total_count":0,"workflow_runs":[]}"#).unwrap().len(), 0);
        assert_eq!(runs_page(b"[]").unwrap_err(), NotAPage);
    }
}
