//! The REST interface: what is asked, by whom, and what comes back.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::bodies::{Bodies, time};
use super::callers::Caller;
use super::feeds::{attempt, events, history, linked, runs};
use super::page::{Query, Reply, Request, page};
use super::repository::Repository;
use super::{APP, Asked, FakeGithub, Outage, account_id};

/// A request of a known caller, taken apart.
struct Inquiry<'a> {
    method: &'a str,
    caller: &'a Caller,
    query: Query,
    /// Its own URL, without the query.
    url: String,
    now: Timestamp,
}

impl FakeGithub {
    /// Answers a request at `now`; `None` where no answer ever comes. Redirects are for the caller to follow.
    pub fn handle(&mut self, request: &Request<'_>, now: Timestamp) -> Option<Reply> {
        let base = self.base.clone();
        let target = request.target.strip_prefix(&base).unwrap_or(request.target);
        let request = Request { target, ..*request };
        let caller = self.callers.identify(request.authorization, now);
        let mut reply = match self.outage {
            Some(Outage::Hanging) => None,
            Some(Outage::Failing) => Some(Reply::message(502, "Server Error")),
            None => Some(self.answer(&request, caller.as_ref(), now)),
        };
        if let Some(reply) = &mut reply {
            reply.date(now + self.clock_offset);
        }
        let spent_until = reply
            .as_ref()
            .and_then(spent_until)
            .map(|reset| reset - self.clock_offset);
        self.remember(Asked {
            at: now,
            caller: caller.map_or_else(|| "refused".to_owned(), |caller| caller.name()),
            method: request.method.to_owned(),
            target: target.to_owned(),
            status: reply.as_ref().map(|reply| reply.status),
            spent_until,
        });
        reply
    }

    fn answer(&mut self, request: &Request<'_>, caller: Option<&Caller>, now: Timestamp) -> Reply {
        let Some(caller) = caller else {
            return Reply::message(401, "Bad credentials");
        };
        let mut reply = match self.callers.refuse(caller, now) {
            Some(refusal) => refusal,
            None => {
                let mut reply = self.route(request, caller, now);
                reply.validate(request);
                self.callers.count(caller, &reply, now);
                reply
            }
        };
        self.callers.show(caller, &mut reply, self.clock_offset, now);
        reply
    }

    fn route(&mut self, request: &Request<'_>, caller: &Caller, now: Timestamp) -> Reply {
        let (path, query) = request.target.split_once('?').unwrap_or((request.target, ""));
        let inquiry = Inquiry {
            method: request.method,
            caller,
            query: Query::parse(query),
            url: format!("{}{path}", self.base),
            now,
        };
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        match (request.method, parts.as_slice()) {
            (_, ["repos", owner, name, rest @ ..]) => self.by_name(&format!("{owner}/{name}"), rest, inquiry),
            (_, ["repositories", id, rest @ ..]) => {
                let mut known = self.repositories.iter();
                let position = known.position(|known| known.id.to_string() == *id);
                self.in_repository(position, rest, inquiry)
            }
            (_, ["orgs", login, "hooks", rest @ ..]) => self.hooks_of(account_id(login), rest, &inquiry),
            ("GET", ["orgs", login, "installation"]) if self.organizations.contains(*login) => {
                self.installation(login, &inquiry)
            }
            ("GET", ["users", login, "installation"]) if !self.organizations.contains(*login) => {
                self.installation(login, &inquiry)
            }
            ("GET", ["orgs", login, "repos"]) if self.organizations.contains(*login) => {
                let (shown, link) = self.repositories_of(login, &inquiry);
                linked(Reply::ok(&json!(shown)), link)
            }
            ("GET", ["installation", "repositories"]) => self.installed_repositories(&inquiry),
            (_, ["app", "hook", "deliveries", rest @ ..]) => match self.hooks.find(APP, None) {
                Some(hook) if *caller == Caller::App => self.deliveries(hook, rest, &inquiry),
                _ => self.only_for_the_app(caller),
            },
            ("POST", ["app", "installations", id, "access_tokens"]) => self.access_token(id, &inquiry),
            _ => Reply::not_found(),
        }
    }

    fn bodies(&self) -> Bodies<'_> {
        Bodies {
            base: &self.base,
            organizations: &self.organizations,
        }
    }

    fn by_name(&mut self, full_name: &str, rest: &[&str], inquiry: Inquiry<'_>) -> Reply {
        let mut known = self.repositories.iter();
        if let Some(position) = known.position(|known| known.is_called(full_name)) {
            return self.in_repository(Some(position), rest, inquiry);
        }
        let mut moved = self.repositories.iter().filter(|known| known.shows_to(inquiry.caller));
        let Some(moved) = moved.find(|known| known.was_called(full_name)) else {
            return Reply::not_found();
        };
        let mut url = format!("{}/repositories/{}", self.base, moved.id);
        for part in rest {
            url = format!("{url}/{part}");
        }
        let query = inquiry.query.text();
        if !query.is_empty() {
            url = format!("{url}?{query}");
        }
        let documentation = "https://docs.github.com/rest/guides/best-practices-for-using-the-rest-api";
        let body = json!({"message": "Moved Permanently", "url": url, "documentation_url": documentation});
        let mut reply = Reply::with(301, &body);
        reply.set("location", url);
        reply
    }

    fn in_repository(&mut self, position: Option<usize>, rest: &[&str], mut inquiry: Inquiry<'_>) -> Reply {
        let known = position.and_then(|position| self.repositories.get(position));
        let Some(repository) = known.filter(|known| known.shows_to(inquiry.caller)) else {
            return Reply::not_found();
        };
        // Links go to a repository's id, which no new name changes.
        inquiry.url = format!("{}/repositories/{}/{}", self.base, repository.id, rest.join("/"));
        let Inquiry { query, url, now, .. } = &inquiry;
        match (inquiry.method, rest) {
            ("GET", ["events"]) => {
                let mut reply = events(&self.feed, repository, query, url, *now);
                reply.set("x-poll-interval", self.poll_interval_s.to_string());
                reply
            }
            ("GET", ["actions", "runs"]) => runs(&self.bodies(), repository, query, url, *now),
            ("GET", ["actions", "runs", run, "attempts", number]) => {
                attempt(&self.bodies(), repository, run, number, *now)
            }
            ("GET", ["issues", number, "events"]) => match number.parse() {
                Ok(number) => history(&self.bodies(), repository, number, query, url),
                Err(_) => Reply::not_found(),
            },
            (_, ["hooks", rest @ ..]) => {
                let id = repository.id;
                self.hooks_of(id, rest, &inquiry)
            }
            _ => Reply::not_found(),
        }
    }

    /// Hooks are for those who administrate their target: anybody with a credential, here.
    fn hooks_of(&mut self, target_id: u64, rest: &[&str], inquiry: &Inquiry<'_>) -> Reply {
        if *inquiry.caller == Caller::Anonymous {
            return Reply::not_found();
        }
        match (inquiry.method, rest) {
            ("GET", []) => self.hooks.list(target_id, &inquiry.url),
            (_, [id, "deliveries", rest @ ..]) => match self.hooks.find(target_id, Some(*id)) {
                Some(hook) => self.deliveries(hook, rest, inquiry),
                None => Reply::not_found(),
            },
            _ => Reply::not_found(),
        }
    }

    fn deliveries(&mut self, hook: u64, rest: &[&str], inquiry: &Inquiry<'_>) -> Reply {
        match (inquiry.method, rest) {
            ("GET", []) => self.log.list(hook, &inquiry.query, &inquiry.url, inquiry.now),
            ("GET", [id]) => self.log.detail(hook, id, inquiry.now),
            ("POST", [id, "attempts"]) => self.log.again(hook, id, &mut self.numbers, inquiry.now),
            _ => Reply::not_found(),
        }
    }

    /// What the App is told where there is nothing, and everybody else where only the App may ask.
    fn only_for_the_app(&self, caller: &Caller) -> Reply {
        if *caller == Caller::App {
            Reply::not_found()
        } else {
            Reply::message(401, "A JSON web token could not be decoded")
        }
    }

    fn installation(&self, login: &str, inquiry: &Inquiry<'_>) -> Reply {
        if *inquiry.caller != Caller::App || !self.installed.contains(login) {
            return self.only_for_the_app(inquiry.caller);
        }
        let account = self.bodies().account(login);
        let id = account_id(login);
        let tokens = format!("{}/app/installations/{id}/access_tokens", self.base);
        Reply::ok(&json!({
            "id": id, "account": account, "repository_selection": "all", "access_tokens_url": tokens,
            "repositories_url": format!("{}/installation/repositories", self.base), "app_id": APP,
            "app_slug": "forebay", "target_id": account["id"], "target_type": account["type"],
            "permissions": permissions(), "events": ["*"], "suspended_at": null,
        }))
    }

    fn access_token(&mut self, id: &str, inquiry: &Inquiry<'_>) -> Reply {
        let mut installed = self.installed.iter();
        let login = installed.find(|login| account_id(login).to_string() == id).cloned();
        let (Some(login), Caller::App) = (login, inquiry.caller) else {
            return self.only_for_the_app(inquiry.caller);
        };
        let (token, until) = self.callers.issue(&login, &mut self.numbers, inquiry.now);
        let expires_at = time(until + self.clock_offset);
        let body = json!({
            "token": token, "expires_at": expires_at, "permissions": permissions(), "repository_selection": "all",
        });
        Reply::with(201, &body)
    }

    fn installed_repositories(&self, inquiry: &Inquiry<'_>) -> Reply {
        let Caller::Installation(login) = inquiry.caller else {
            return Reply::message(403, "You must authenticate with an installation access token.");
        };
        let total = self.visible(login, inquiry.caller).count();
        let (shown, link) = self.repositories_of(login, inquiry);
        let body = json!({"total_count": total, "repository_selection": "all", "repositories": shown});
        linked(Reply::ok(&body), link)
    }

    fn visible<'a>(&'a self, login: &'a str, caller: &'a Caller) -> impl Iterator<Item = &'a Repository> {
        let repositories = self.repositories.iter();
        repositories.filter(move |known| known.owner == login && known.shows_to(caller))
    }

    fn repositories_of(&self, login: &str, inquiry: &Inquiry<'_>) -> (Vec<Value>, Option<String>) {
        let visible: Vec<_> = self.visible(login, inquiry.caller).collect();
        let (shown, link) = page(visible, &inquiry.query, &inquiry.url);
        let bodies = self.bodies();
        let shown = shown.into_iter().map(|repository| bodies.repository(repository));
        (shown.collect(), link)
    }
}

/// When there is something left again, by an answer's headers, where there is nothing now.
fn spent_until(reply: &Reply) -> Option<Timestamp> {
    let is_spent = reply.header("x-ratelimit-remaining") == Some("0");
    let reset = reply.header("x-ratelimit-reset")?.parse().ok();
    reset
        .filter(|_| is_spent)
        .and_then(|at| Timestamp::from_second(at).ok())
}

/// What the App may do where it is installed.
fn permissions() -> Value {
    json!({
        "actions": "read", "contents": "read", "issues": "read", "metadata": "read", "pull_requests": "read",
        "repository_hooks": "write",
    })
}
