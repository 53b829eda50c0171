//! Plays one step of the demonstration and says what came of it, wherever that can be seen.

use std::path::PathBuf;

use forebay_core::delivery::{DeliveryKey, Outcome};
use forebay_core::event::EventId;
use forebay_core::ledger::EventRow;
use forebay_core::ports::Ledger as _;
use serde::Deserialize;

use super::compare;
use super::report::{Came, Played};
use super::secrecy::Secrecy;
use crate::connect::{Connected, answered};
use crate::delivery::Headers;
use crate::error::{Attempt as _, Error};
use crate::http::{Http, Reply};
use crate::inbox::{self, Received};
use crate::manifest::{Answered, CloseSession, Deliver, Manifest, OpenSession, Step, Woken};
use crate::secret::WebhookSecret;
use crate::session::{self, Wish};
use crate::stack::Stack;

/// How long a session of the demonstration lives: longer than any demonstration.
const SESSION_HOURS: i64 = 1;

/// The webhook's answer, as far as it is looked at.
#[derive(Debug, Default, Deserialize)]
struct Answer {
    #[serde(default)]
    delivery: Option<String>,
    outcome: String,
    #[serde(default)]
    refusal: Option<String>,
    #[serde(default)]
    events: Vec<String>,
}

/// What plays the steps.
pub(super) struct Player<'a> {
    events: PathBuf,
    manifest: &'a Manifest,
    stack: &'a Stack,
    connected: &'a Connected,
    http: Http,
    secret: WebhookSecret,
    secrecy: Secrecy,
}

/// What the ledger has of a delivery.
#[derive(Default)]
struct Kept {
    /// Where its event stands, or why it has none.
    word: Option<String>,
    event: Option<EventRow>,
    body: Option<Vec<u8>>,
}

impl<'a> Player<'a> {
    /// A player of the recorded inputs in the folder `events` on `stack`.
    pub(super) fn new(
        events: PathBuf,
        manifest: &'a Manifest,
        stack: &'a Stack,
        connected: &'a Connected,
        http: Http,
    ) -> Self {
        Self {
            events,
            manifest,
            stack,
            connected,
            http,
            secret: WebhookSecret::local(),
            secrecy: Secrecy::default(),
        }
    }

    /// What must not be in the logs after everything that was played.
    pub(super) fn secrecy(&self) -> &Secrecy {
        &self.secrecy
    }

    /// Plays one step.
    pub(super) async fn play(&mut self, number: usize, step: &Step) -> Result<Played, Error> {
        let (came, differences) = match step {
            Step::Deliver(deliver) => self.deliver(deliver).await?,
            Step::OpenSession(open) => self.open(open).await?,
            Step::CloseSession(close) => self.close(close).await?,
        };
        Ok(Played {
            step: number,
            name: step.name().to_owned(),
            came,
            shows: step.shows().to_owned(),
            differences,
        })
    }

    /// Posts a recorded input.
    async fn deliver(&mut self, deliver: &Deliver) -> Result<(Came, Vec<String>), Error> {
        let name = &deliver.recording;
        let recording = self.manifest.recording(name).ok_or_else(|| {
            Error::new(
                format!("play {name}: nothing of that name is recorded"),
                "mend events/manifest.json",
            )
        })?;
        let path = self.events.join(&recording.file);
        let body = std::fs::read(&path).attempting(|| format!("read {}", path.display()), "restore the file")?;
        let headers = Headers::recorded(self.manifest, recording);
        self.secrecy.add(name, &headers, &self.secret, &body);
        let reply = headers
            .post(&self.http, &self.stack.webhook_url, &self.secret, &body)
            .await?;
        let answer = answer(&reply);
        let key = DeliveryKey::parse(&format!("{}/{}", headers.hook, headers.guid));
        let key =
            key.ok_or_else(|| Error::new(format!("play {name}: its hook or GUID"), "mend events/manifest.json"))?;
        let kept = self.kept(&key).await?;
        let got = self.drain().await?;

        let mut differences = Vec::new();
        let event = kept.event.as_ref();
        if answer.delivery.as_deref() != Some(headers.guid.as_str()) {
            differences.push("the answer names another delivery".to_owned());
        }
        if kept.word.is_some() && kept.body.as_deref() != Some(body.as_slice()) {
            differences.push(format!(
                "the ledger's bytes are not those of {}",
                recording.file.display()
            ));
        }
        differences.extend(
            got.iter()
                .filter_map(|(inbox, message)| compare::message(inbox, message, event)),
        );
        let answered = Answered {
            status: reply.status,
            outcome: answer.outcome,
            refusal: answer.refusal,
            events: answer.events,
            ledger: kept.word,
            inboxes: names(&got),
        };
        differences.extend(compare::fields(&deliver.expect, &answered));
        Ok((Came::Delivered(answered), differences))
    }

    /// Opens a session, and looks at the events that it woke.
    async fn open(&self, open: &OpenSession) -> Result<(Came, Vec<String>), Error> {
        let wish = Wish {
            id: Some(&open.session),
            agent: &open.agent,
            repository: &open.repository,
            branch: open.branch.as_deref(),
            pull: open.pull,
            hours: SESSION_HOURS,
        };
        let live = session::open(self.connected, wish).await?;
        let got = self.drain().await?;
        let mut woken = Woken {
            inboxes: names(&got),
            ..Woken::default()
        };
        let mut differences = Vec::new();
        for event in &live.woken {
            let row = answered(self.connected.ledger.event(&EventId::new(&event.event)).await)?;
            woken.events.extend(row.iter().map(|row| row.event.kind.to_string()));
            woken.ledger = row.as_ref().map(word);
            let messages = got
                .iter()
                .filter_map(|(inbox, message)| compare::message(inbox, message, row.as_ref()));
            differences.extend(messages);
        }
        differences.extend(compare::fields(&open.expect, &woken));
        Ok((Came::Opened(woken), differences))
    }

    /// Closes a session.
    async fn close(&self, close: &CloseSession) -> Result<(Came, Vec<String>), Error> {
        session::close(self.connected, &close.session).await?;
        let woken = Woken {
            inboxes: names(&self.drain().await?),
            ..Woken::default()
        };
        let differences = compare::fields(&Woken::default(), &woken);
        Ok((Came::Closed(woken), differences))
    }

    /// What the ledger has under `key`.
    async fn kept(&self, key: &DeliveryKey) -> Result<Kept, Error> {
        let ledger = &self.connected.ledger;
        let Some(row) = answered(ledger.delivery(key).await)? else {
            return Ok(Kept::default());
        };
        let event = match &row.delivery.outcome {
            Outcome::Accepted(event) => answered(ledger.event(event).await)?,
            Outcome::Ignored(_) | Outcome::Malformed(_) => None,
        };
        let word = match &row.delivery.outcome {
            Outcome::Accepted(_) => event.as_ref().map_or_else(|| "no event".to_owned(), word),
            Outcome::Ignored(why) => why.to_string(),
            Outcome::Malformed(why) => why.to_string(),
        };
        Ok(Kept {
            word: Some(word),
            event,
            body: answered(ledger.body(key).await)?,
        })
    }

    /// Takes everything out of every inbox, so that what comes next is told from what was there.
    async fn drain(&self) -> Result<Vec<(String, Received)>, Error> {
        let mut all = Vec::new();
        for (name, url) in &self.connected.config.inboxes {
            let messages = inbox::drain(&self.connected.sqs, url).await?;
            all.extend(messages.into_iter().map(|message| (name.clone(), message)));
        }
        Ok(all)
    }
}

/// The webhook's answer; what is no answer of ours is one with an empty outcome.
fn answer(reply: &Reply) -> Answer {
    serde_json::from_slice(&reply.body).unwrap_or_default()
}

/// Inboxes that got something, once for each message.
fn names(got: &[(String, Received)]) -> Vec<String> {
    got.iter().map(|(inbox, _)| inbox.clone()).collect()
}

/// Why the event stands where it stands; before there is a reason, where it stands.
fn word(row: &EventRow) -> String {
    let reason = row.state.reason.map(|reason| reason.to_string());
    reason.unwrap_or_else(|| row.state.status.to_string())
}
