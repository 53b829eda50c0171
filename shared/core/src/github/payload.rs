//! The few fields of GitHub's payloads that Forebay reads, borrowed from the body.
//!
//! Every field may be absent or null. The objects of a payload stay raw until somebody asks for them, so that a wrong type
//! in one that the event does not need costs nothing.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::delivery::Malformed;
use crate::event::Repository;

/// Longest name, ref, URL or commit id that is taken over, in bytes; a longer one counts as absent. Git cannot even store a
/// ref of this length, and an event row has to stay small whatever a payload claims.
const WORD_BYTES_MAX: usize = 2_048;

/// A value that has not been read yet.
pub(super) type Raw<'a> = Option<&'a RawValue>;

/// A field of a type that it must not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WrongType;

/// Text that is borrowed where it has no escapes.
#[derive(serde::Deserialize)]
#[serde(transparent)]
pub(super) struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl Text<'_> {
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

/// A text of any length, empty where it is absent.
pub(super) fn full<'a>(text: &'a Option<Text<'_>>) -> &'a str {
    text.as_ref().map_or("", Text::as_str)
}

/// A name, ref, URL or commit id: not blank, and of a plausible length.
pub(super) fn word<'a>(text: &'a Option<Text<'_>>) -> Option<&'a str> {
    let word = full(text);
    (!word.trim().is_empty() && word.len() <= WORD_BYTES_MAX).then_some(word)
}

/// [`word`], owned.
pub(super) fn owned(text: &Option<Text<'_>>) -> Option<String> {
    word(text).map(str::to_owned)
}

/// The object that `raw` holds; `None` where it is absent or null.
pub(super) fn view<'a, T: Deserialize<'a>>(raw: Raw<'a>) -> Result<Option<T>, WrongType> {
    let Some(raw) = raw else { return Ok(None) };
    object(&mut serde_json::Deserializer::from_str(raw.get())).or(Err(WrongType))
}

/// The plain value that `raw` holds.
pub(super) fn value<'a, T: Deserialize<'a>>(raw: Raw<'a>) -> Result<Option<T>, WrongType> {
    let Some(raw) = raw else { return Ok(None) };
    serde_json::from_str(raw.get()).or(Err(WrongType))
}

/// Reads an object or null, and nothing else: the views below would also take an array, field by field.
fn object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<T>, D::Error> {
    struct Object<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for Object<T> {
        type Value = Option<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object or null")
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
            T::deserialize(MapAccessDeserializer::new(map)).map(Some)
        }
    }

    from.deserialize_any(Object(PhantomData))
}

/// The top level of a payload.
#[derive(serde::Deserialize)]
pub(super) struct Payload<'a> {
    #[serde(borrow)]
    pub(super) action: Raw<'a>,
    #[serde(borrow)]
    pub(super) repository: Raw<'a>,
    #[serde(borrow)]
    pub(super) sender: Raw<'a>,
    #[serde(borrow)]
    pub(super) pull_request: Raw<'a>,
    #[serde(borrow)]
    pub(super) issue: Raw<'a>,
    #[serde(borrow)]
    pub(super) comment: Raw<'a>,
    #[serde(borrow)]
    pub(super) review: Raw<'a>,
    #[serde(borrow)]
    pub(super) check_run: Raw<'a>,
    #[serde(borrow)]
    pub(super) check_suite: Raw<'a>,
    #[serde(borrow)]
    pub(super) workflow_run: Raw<'a>,
    #[serde(borrow)]
    pub(super) workflow: Raw<'a>,
    #[serde(borrow)]
    pub(super) release: Raw<'a>,
    #[serde(borrow, rename = "ref")]
    pub(super) git_ref: Raw<'a>,
    #[serde(borrow)]
    pub(super) deleted: Raw<'a>,
    #[serde(borrow)]
    pub(super) head_commit: Raw<'a>,
    #[serde(borrow)]
    pub(super) compare: Raw<'a>,
    #[serde(borrow)]
    pub(super) pusher: Raw<'a>,
}

impl<'a> Payload<'a> {
    pub(super) fn parse(json: &'a str) -> Result<Self, Malformed> {
        if !json.trim_start().starts_with('{') {
            let is_json = serde_json::from_str::<IgnoredAny>(json).is_ok();
            return Err(if is_json {
                Malformed::NotAnObject
            } else {
                Malformed::NotJson
            });
        }
        // A key that occurs twice is JSON, but nobody can say which of the two is meant.
        serde_json::from_str(json).map_err(|error| {
            if error.is_data() {
                Malformed::Shape
            } else {
                Malformed::NotJson
            }
        })
    }
}

#[derive(serde::Deserialize)]
pub(super) struct User<'a> {
    #[serde(borrow)]
    pub(super) login: Option<Text<'a>>,
}

impl User<'_> {
    pub(super) fn login(user: &Option<Self>) -> Option<&str> {
        word(&user.as_ref()?.login)
    }
}

/// The author of a text.
#[derive(Default)]
pub(super) enum Author<'a> {
    /// The field is not there.
    #[default]
    Absent,
    /// The field is null: the account was deleted.
    Gone,
    /// This account.
    Is(User<'a>),
}

fn author<'de: 'a, 'a, D: Deserializer<'de>>(from: D) -> Result<Author<'a>, D::Error> {
    Ok(object(from)?.map_or(Author::Gone, Author::Is))
}

/// A repository as other objects name it.
#[derive(serde::Deserialize)]
pub(super) struct RepositoryRef<'a> {
    pub(super) id: Option<u64>,
    #[serde(borrow)]
    pub(super) full_name: Option<Text<'a>>,
}

/// The full name alone, which is worth knowing even where the rest cannot be read.
#[derive(serde::Deserialize)]
pub(super) struct FullName<'a> {
    #[serde(borrow)]
    full_name: Option<Text<'a>>,
}

impl FullName<'_> {
    pub(super) fn repository(&self) -> Option<Repository> {
        Repository::new(word(&self.full_name)?)
    }
}

/// The repository that a payload is about.
#[derive(serde::Deserialize)]
pub(super) struct Home<'a> {
    pub(super) id: Option<u64>,
    #[serde(borrow)]
    pub(super) full_name: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) url: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) html_url: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) pushed_at: Raw<'a>,
}

impl Home<'_> {
    /// Whether `other` is this very repository: by id where both have one, since names can be taken over, else by name.
    pub(super) fn is(&self, other: &Option<RepositoryRef<'_>>) -> bool {
        let Some(other) = other else { return false };
        match (self.id, other.id) {
            (Some(own), Some(other)) => own == other,
            _ => match (word(&self.full_name), word(&other.full_name)) {
                (Some(own), Some(other)) => own.to_lowercase() == other.to_lowercase(),
                _ => false,
            },
        }
    }
}

/// The head or the base of a pull request.
#[derive(serde::Deserialize)]
pub(super) struct Side<'a> {
    #[serde(borrow, rename = "ref")]
    pub(super) branch: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) sha: Option<Text<'a>>,
    #[serde(borrow, default, deserialize_with = "object")]
    pub(super) repo: Option<RepositoryRef<'a>>,
}

#[derive(serde::Deserialize)]
pub(super) struct PullRequest<'a> {
    pub(super) id: Option<u64>,
    pub(super) number: Option<u64>,
    #[serde(borrow)]
    pub(super) url: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) html_url: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) title: Option<Text<'a>>,
    #[serde(borrow, default, deserialize_with = "object")]
    pub(super) user: Option<User<'a>>,
    pub(super) merged: Option<bool>,
    #[serde(borrow, default, deserialize_with = "object")]
    pub(super) merged_by: Option<User<'a>>,
    #[serde(borrow)]
    pub(super) created_at: Raw<'a>,
    #[serde(borrow)]
    pub(super) updated_at: Raw<'a>,
    #[serde(borrow)]
    pub(super) closed_at: Raw<'a>,
    #[serde(borrow)]
    pub(super) merged_at: Raw<'a>,
    #[serde(borrow, default, deserialize_with = "object")]
    pub(super) head: Option<Side<'a>>,
    #[serde(borrow, default, deserialize_with = "object")]
    pub(super) base: Option<Side<'a>>,
}

/// A pull request as checks list it.
#[derive(serde::Deserialize)]
pub(super) struct PullRef<'a> {
    pub(super) number: Option<u64>,
    #[serde(borrow, default, deserialize_with = "object")]
    pub(super) head: Option<Side<'a>>,
    #[serde(borrow, default, deserialize_with = "object")]
    pub(super) base: Option<Side<'a>>,
}

#[derive(serde::Deserialize)]
pub(super) struct Issue<'a> {
    pub(super) id: Option<u64>,
    pub(super) number: Option<u64>,
    #[serde(borrow)]
    pub(super) url: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) html_url: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) title: Option<Text<'a>>,
    #[serde(borrow, default, deserialize_with = "object")]
    pub(super) user: Option<User<'a>>,
    /// Present where the issue is a pull request.
    #[serde(borrow)]
    pub(super) pull_request: Raw<'a>,
    #[serde(borrow)]
    pub(super) created_at: Raw<'a>,
    #[serde(borrow)]
    pub(super) updated_at: Raw<'a>,
    #[serde(borrow)]
    pub(super) closed_at: Raw<'a>,
}

#[derive(serde::Deserialize)]
pub(super) struct Comment<'a> {
    pub(super) id: Option<u64>,
    #[serde(borrow)]
    pub(super) html_url: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) body: Option<Text<'a>>,
    #[serde(borrow, default, deserialize_with = "author")]
    pub(super) user: Author<'a>,
    #[serde(borrow)]
    pub(super) created_at: Raw<'a>,
}

#[derive(serde::Deserialize)]
pub(super) struct Review<'a> {
    pub(super) id: Option<u64>,
    #[serde(borrow)]
    pub(super) html_url: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) body: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) state: Option<Text<'a>>,
    #[serde(borrow, default, deserialize_with = "author")]
    pub(super) user: Author<'a>,
    #[serde(borrow)]
    pub(super) submitted_at: Raw<'a>,
}

#[derive(serde::Deserialize)]
pub(super) struct CheckRun<'a> {
    pub(super) id: Option<u64>,
    #[serde(borrow)]
    pub(super) name: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) head_sha: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) html_url: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) conclusion: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) completed_at: Raw<'a>,
    #[serde(borrow, default, deserialize_with = "object")]
    pub(super) check_suite: Option<SuiteRef<'a>>,
    #[serde(borrow)]
    pub(super) pull_requests: Option<Vec<Raw<'a>>>,
}

/// A check suite as its runs name it.
#[derive(serde::Deserialize)]
pub(super) struct SuiteRef<'a> {
    #[serde(borrow)]
    pub(super) head_branch: Option<Text<'a>>,
}

#[derive(serde::Deserialize)]
pub(super) struct CheckSuite<'a> {
    pub(super) id: Option<u64>,
    #[serde(borrow)]
    pub(super) head_branch: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) head_sha: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) conclusion: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) updated_at: Raw<'a>,
    #[serde(borrow, default, deserialize_with = "object")]
    pub(super) app: Option<Titled<'a>>,
    #[serde(borrow)]
    pub(super) pull_requests: Option<Vec<Raw<'a>>>,
}

#[derive(serde::Deserialize)]
pub(super) struct WorkflowRun<'a> {
    pub(super) id: Option<u64>,
    pub(super) run_attempt: Option<u64>,
    #[serde(borrow)]
    pub(super) name: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) head_branch: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) head_sha: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) html_url: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) conclusion: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) updated_at: Raw<'a>,
    #[serde(borrow, default, deserialize_with = "object")]
    pub(super) head_repository: Option<RepositoryRef<'a>>,
    #[serde(borrow)]
    pub(super) pull_requests: Option<Vec<Raw<'a>>>,
}

/// Anything of which only the name counts: an app, a workflow, who pushed.
#[derive(serde::Deserialize)]
pub(super) struct Titled<'a> {
    #[serde(borrow)]
    pub(super) name: Option<Text<'a>>,
}

#[derive(serde::Deserialize)]
pub(super) struct Release<'a> {
    pub(super) id: Option<u64>,
    #[serde(borrow)]
    pub(super) name: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) tag_name: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) html_url: Option<Text<'a>>,
    #[serde(borrow, default, deserialize_with = "object")]
    pub(super) author: Option<User<'a>>,
    #[serde(borrow)]
    pub(super) published_at: Raw<'a>,
}

#[derive(serde::Deserialize)]
pub(super) struct Commit<'a> {
    #[serde(borrow)]
    pub(super) id: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) message: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) url: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) timestamp: Raw<'a>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_is_not_taken_for_an_object() {
        let read = |json| value::<&RawValue>(Some(serde_json::from_str(json).unwrap())).and_then(view::<User<'_>>);
        assert!(read(r#"["dev1"]"#).is_err());
        assert!(read("null").unwrap().is_none());
        let user = read(r#"{"login": "dev\u0031", "id": {"any": 1}}"#).unwrap();
        assert_eq!(User::login(&user), Some("dev1"));
        assert!(view::<CheckSuite<'_>>(Some(serde_json::from_str(r#"{"app":["x"]}"#).unwrap())).is_err());
    }

    #[test]
    fn a_word_of_absurd_length_counts_as_absent() {
        let text = |len| Some(Text("x".repeat(len).into()));
        assert!(word(&text(WORD_BYTES_MAX)).is_some());
        assert!(word(&text(WORD_BYTES_MAX + 1)).is_none());
        assert!(word(&Some(Text(" ".into()))).is_none());
    }
}
