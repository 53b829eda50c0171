//! One payload, what surrounds it, and what all kinds of events take from them in the same way.

use std::fmt;

use super::payload::{
    Author, FullName, Home, Payload, PullRef, PullRequest, Raw, Side, Text, User, WrongType, full, owned, value, view,
    word,
};
use super::time::time;
use super::{Envelope, Named};
use crate::delivery::Ignored;
use crate::event::{Event, EventId, Kind, Repository, Subject};

/// Most pull requests that one check may name. GitHub lists those with the same head branch: a handful at most.
const PULLS_MAX: usize = 100;
/// The account that GitHub shows for authors whose own was deleted. The sender does not stand in for them: it may be a bot
/// whose texts are ignored, and this text is not the bot's.
const GHOST: &str = "ghost";

/// Why there is no event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// It is none of our kinds, or lacks what identifies it.
    Ignored(Ignored),
    /// A field that is needed has a type that it must not have.
    Shape,
}

impl From<WrongType> for Stop {
    fn from(_: WrongType) -> Self {
        Self::Shape
    }
}

/// What identity or subject cannot do without.
pub(super) fn need<T>(field: Option<T>) -> Result<T, Stop> {
    field.ok_or(Stop::Ignored(Ignored::Incomplete))
}

/// The answer to an action that is none of our kinds.
pub(super) const UNHANDLED: Stop = Stop::Ignored(Ignored::UnhandledAction);

/// One payload and what surrounds it.
pub(super) struct Scene<'a> {
    pub(super) envelope: &'a Envelope<'a>,
    pub(super) payload: &'a Payload<'a>,
    action: Result<Option<Text<'a>>, WrongType>,
    home: Result<Option<Home<'a>>, WrongType>,
    /// The repository that the payload speaks for.
    pub(super) name: Option<Repository>,
}

impl<'a> Scene<'a> {
    pub(super) fn new(envelope: &'a Envelope<'a>, payload: &'a Payload<'a>) -> Self {
        let home = view::<Home<'a>>(payload.repository);
        let name = view::<FullName<'a>>(payload.repository).ok().flatten();
        Self {
            envelope,
            payload,
            action: value(payload.action),
            home,
            name: name.and_then(|name| name.repository()),
        }
    }

    /// The action, where it can be read.
    pub(super) fn stated_action(&self) -> Option<&str> {
        Some(self.action.as_ref().ok()?.as_ref()?.as_str())
    }

    /// The action, empty where there is none.
    pub(super) fn action(&self) -> Result<&str, Stop> {
        Ok(full(self.action.as_ref().map_err(|wrong| *wrong)?))
    }

    pub(super) fn home(&self) -> Result<Option<&Home<'a>>, Stop> {
        Ok(self.home.as_ref().map_err(|wrong| *wrong)?.as_ref())
    }

    pub(super) fn sender(&self) -> Result<Option<String>, Stop> {
        let sender = view::<User<'_>>(self.payload.sender)?;
        Ok(User::login(&sender).map(str::to_owned))
    }

    /// `user`, else the sender.
    pub(super) fn actor(&self, user: &Option<User<'_>>) -> Result<Option<String>, Stop> {
        User::login(user).map_or_else(|| self.sender(), |login| Ok(Some(login.to_owned())))
    }

    /// Who wrote a text.
    pub(super) fn writer(&self, author: &Author<'_>) -> Result<Option<String>, Stop> {
        match author {
            Author::Is(User { login }) => owned(login).map_or_else(|| self.sender(), |login| Ok(Some(login))),
            Author::Gone => Ok(Some(GHOST.to_owned())),
            Author::Absent => self.sender(),
        }
    }

    pub(super) fn id(&self, name: fmt::Arguments<'_>) -> EventId {
        match self.envelope.host {
            Some(host) => EventId::new(&format!("{host}/github/{name}")),
            None => EventId::new(&format!("github/{name}")),
        }
    }

    /// What tells the times apart that one thing happens: the first of `times` that is known, as epoch seconds, else the
    /// GUID, with which every hook reports that one time.
    pub(super) fn moment(&self, times: &[Raw<'_>]) -> Result<String, Stop> {
        match times.iter().find_map(|raw| time(*raw)) {
            Some(time) => Ok(time.as_second().to_string()),
            None => self.guid().map(str::to_owned),
        }
    }

    /// The GUID, which only a delivery has.
    pub(super) fn guid(&self) -> Result<&str, Stop> {
        need(self.envelope.key.map(|key| key.guid.as_str()))
    }

    /// An event with what all kinds have in common; the source is the repository, the actor the sender.
    pub(super) fn event(&self, kind: Kind, id: EventId, about: About) -> Result<Event, Stop> {
        let repository = need(self.name.clone())?;
        let (subject, pull_requests) = match about {
            About::Pull(number) => (Subject::PullRequest { repository, number }, vec![number]),
            About::Issue(number) => (Subject::Issue { repository, number }, Vec::new()),
            About::Repository => (Subject::Repository(repository), Vec::new()),
        };
        Ok(Event {
            id,
            kind,
            cloud_type: self.cloud_type()?,
            cloud_source: self.home_url()?,
            cloud_subject: subject.number().map(|number| number.to_string()).unwrap_or_default(),
            subject,
            pull_requests,
            actor: None,
            url: None,
            summary: String::new(),
            branch: None,
            base: None,
            head_sha: None,
            conclusion: None,
            occurred_at: None,
            delivery: self.envelope.key.cloned(),
            content: None,
        })
    }

    /// The published adapter's type: it says `issue` where the header says `issues`, and a push has no action.
    fn cloud_type(&self) -> Result<String, Stop> {
        match self.envelope.event_name.as_str() {
            "push" => Ok("com.github.push".to_owned()),
            "issues" => Ok(format!("com.github.issue.{}", self.action()?)),
            name => Ok(format!("com.github.{name}.{}", self.action()?)),
        }
    }

    fn home_url(&self) -> Result<String, Stop> {
        let home = self.home()?;
        let stated = home.and_then(|home| word(&home.url).or_else(|| word(&home.html_url)));
        if let Some(url) = stated {
            return Ok(uri(url));
        }
        let host = self.envelope.host.unwrap_or("github.com");
        let name = need(self.name.as_ref())?;
        Ok(uri(&format!("https://{host}/{name}")))
    }

    /// The first of `urls` that there is, else the repository's.
    pub(super) fn source(&self, urls: [&Option<Text<'_>>; 2]) -> Result<String, Stop> {
        urls.into_iter()
            .find_map(word)
            .map_or_else(|| self.home_url(), |url| Ok(uri(url)))
    }

    /// The branch of `head`, where it is a branch of this very repository. A head without a repository is a fork that is
    /// gone: its `main` is not ours.
    pub(super) fn own_branch<'b>(&self, head: &'b Option<Side<'_>>) -> Result<Option<&'b str>, Stop> {
        let Some((home, head)) = self.home()?.zip(head.as_ref()) else {
            return Ok(None);
        };
        Ok(word(&head.branch).filter(|_| home.is(&head.repo)))
    }

    /// The payload's pull request; what it says of branch and number is noted whatever the action.
    pub(super) fn pull(&self, names: &mut Vec<Named>) -> Result<Option<PullRequest<'a>>, Stop> {
        let Some(pull) = view::<PullRequest<'a>>(self.payload.pull_request)? else {
            return Ok(None);
        };
        self.note(names, self.own_branch(&pull.head)?, pull.number);
        Ok(Some(pull))
    }

    fn note(&self, names: &mut Vec<Named>, branch: Option<&str>, pull: Option<u64>) {
        if let (Some(repository), Some(branch), Some(pull)) = (self.name.clone(), branch, pull) {
            names.push(Named {
                repository,
                branch: branch.to_owned(),
                pull,
            });
        }
    }

    /// The pull requests of this repository in a check's list, in its order.
    pub(super) fn pulls(
        &self,
        list: &Option<Vec<Raw<'_>>>,
        branch: Option<&str>,
        names: &mut Vec<Named>,
    ) -> Result<Vec<u64>, Stop> {
        let Some(home) = self.home()? else {
            return Ok(Vec::new());
        };
        let mut pulls = Vec::new();
        for raw in list.iter().flatten().take(PULLS_MAX) {
            let Some(PullRef {
                number: Some(number),
                head,
                base,
            }) = view::<PullRef<'_>>(*raw)?
            else {
                continue;
            };
            let is_ours = base.is_some_and(|base| home.is(&base.repo));
            if !is_ours || pulls.contains(&number) {
                continue;
            }
            pulls.push(number);
            // The list can hold a fork's pull request with the same commit; the branch is not that one's.
            if head.is_none() || self.own_branch(&head)? == branch {
                self.note(names, branch, Some(number));
            }
        }
        Ok(pulls)
    }
}

/// What an event is about.
#[derive(Clone, Copy)]
pub(super) enum About {
    Pull(u64),
    Issue(u64),
    Repository,
}

/// `text` with everything escaped that a URI may not hold.
fn uri(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:/?#@!$&'()*+,;=%".contains(&byte);
    let mut uri = String::with_capacity(text.len());
    for byte in text.bytes() {
        if plain(byte) {
            uri.push(char::from(byte));
        } else {
            uri.push('%');
            uri.push_str(&hex::encode_upper([byte]));
        }
    }
    uri
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uri_holds_only_what_it_may() {
        assert_eq!(
            uri("https://api.github.com/repos/acme/app"),
            "https://api.github.com/repos/acme/app"
        );
        assert_eq!(uri("https://x/é \"<"), "https://x/%C3%A9%20%22%3C");
    }
}
