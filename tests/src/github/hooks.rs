//! Hooks: what each hears of, and what it sends.

use std::collections::BTreeSet;

use forebay_core::signature::{Secret, Secrets};
use serde_json::{Map, Value, json};

use super::account_id;
use super::page::Reply;

const USER_AGENT: &str = "GitHub-Hookshot/f0rebay";

/// What a hook hears of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HookTarget {
    /// One repository, as `owner/name`.
    Repository(String),
    /// All of an account's.
    Organization(String),
    /// All of the accounts that the App is installed for. There is one such hook at most.
    App,
}

/// What hooks tell of one happening.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) guid: String,
    pub(super) event: &'static str,
    pub(super) action: Option<&'static str>,
    pub(super) repository_id: u64,
    pub(super) owner: String,
    pub(super) body: Map<String, Value>,
}

impl Message {
    pub(super) fn add(&mut self, name: &str, value: Option<Value>) {
        self.body.extend(value.map(|value| (name.to_owned(), value)));
    }
}

#[derive(Debug)]
struct Hook {
    id: u64,
    target: HookTarget,
    target_id: u64,
    url: String,
    secret: Option<Secret>,
}

impl Hook {
    fn hears(&self, message: &Message, installed: &BTreeSet<String>) -> bool {
        match &self.target {
            HookTarget::Repository(_) => self.target_id == message.repository_id,
            HookTarget::Organization(login) => *login == message.owner,
            HookTarget::App => installed.contains(&message.owner),
        }
    }

    /// What this hook sends: an App's deliveries name the installation, others' do not.
    fn letter(&self, message: &Message) -> Letter {
        let installation = (self.target == HookTarget::App).then(|| account_id(&message.owner));
        let mut body = Map::new();
        body.extend(message.action.map(|action| ("action".to_owned(), json!(action))));
        body.extend(message.body.clone());
        body.extend(installation.map(|id| ("installation".to_owned(), json!({"id": id, "node_id": "I_1"}))));
        let body = Value::Object(body).to_string();
        let kind = match self.target {
            HookTarget::Repository(_) => "repository",
            HookTarget::Organization(_) => "organization",
            HookTarget::App => "integration",
        };
        let mut headers = vec![
            ("Content-Type", "application/json".to_owned()),
            ("User-Agent", USER_AGENT.to_owned()),
            ("X-GitHub-Delivery", message.guid.clone()),
            ("X-GitHub-Event", message.event.to_owned()),
            ("X-GitHub-Hook-ID", self.id.to_string()),
            ("X-GitHub-Hook-Installation-Target-ID", self.target_id.to_string()),
            ("X-GitHub-Hook-Installation-Target-Type", kind.to_owned()),
        ];
        let signature = self.secret.as_ref().map(|secret| secret.sign(body.as_bytes()));
        headers.extend(signature.map(|signature| ("X-Hub-Signature-256", signature)));
        Letter {
            hook: self.id,
            url: self.url.clone(),
            action: message.action,
            repository_id: message.repository_id,
            installation,
            headers,
            body,
        }
    }
}

/// What one hook sends of one happening, each time the same.
#[derive(Debug)]
pub(super) struct Letter {
    pub(super) hook: u64,
    pub(super) url: String,
    pub(super) action: Option<&'static str>,
    pub(super) repository_id: u64,
    pub(super) installation: Option<u64>,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) body: String,
}

/// All hooks.
#[derive(Debug, Default)]
pub(super) struct Hooks(Vec<Hook>);

impl Hooks {
    pub(super) fn add(&mut self, id: u64, target: &HookTarget, target_id: u64, url: &str, secret: &str) {
        self.0.push(Hook {
            id,
            target: target.clone(),
            target_id,
            url: url.to_owned(),
            secret: Secrets::single(secret).signer().cloned(),
        });
    }

    /// What every hook in reach sends.
    pub(super) fn letters(&self, message: &Message, installed: &BTreeSet<String>) -> Vec<Letter> {
        let hearing = self.0.iter().filter(|hook| hook.hears(message, installed));
        hearing.map(|hook| hook.letter(message)).collect()
    }

    /// The hook of a target that a path names by its id; the App's goes without.
    pub(super) fn find(&self, target_id: u64, id: Option<&str>) -> Option<u64> {
        let mut ids = self.of(target_id).map(|hook| hook.id);
        ids.find(|known| id.is_none_or(|id| id == known.to_string()))
    }

    fn of(&self, target_id: u64) -> impl Iterator<Item = &Hook> {
        self.0.iter().filter(move |hook| hook.target_id == target_id)
    }

    /// The hooks of a target, reached at `url`.
    pub(super) fn list(&self, target_id: u64, url: &str) -> Reply {
        let hooks = self.of(target_id).map(|hook| {
            let own_url = format!("{url}/{}", hook.id);
            let secret = hook.secret.as_ref().map(|_kept| "********");
            let kind = match hook.target {
                HookTarget::Repository(_) => "Repository",
                HookTarget::Organization(_) => "Organization",
                HookTarget::App => "App",
            };
            json!({
                "type": kind, "id": hook.id, "name": "web", "active": true, "events": ["*"],
                "config": {"content_type": "json", "insecure_ssl": "0", "url": hook.url, "secret": secret},
                "deliveries_url": format!("{own_url}/deliveries"), "ping_url": format!("{own_url}/pings"),
                "url": own_url,
            })
        });
        Reply::ok(&json!(hooks.collect::<Vec<_>>()))
    }
}
