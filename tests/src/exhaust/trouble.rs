//! What can befall a call.

use std::fmt;

use serde_json::{Value, json};

use super::cloud::SEND;
use crate::fault::{Call, Fault};

/// What befalls one call to DynamoDB or SQS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// It is not carried out, and the service says that it has a fault.
    ServerFault,
    /// It is carried out, and the connection is reset before the answer.
    AnswerLost,
    /// It is not carried out: too many at once.
    Throttled,
    /// A write is not carried out because another is under way on the same row.
    Conflict,
    /// A queue refuses the message itself.
    Rejected,
    /// It is not carried out, and nothing answers before the time-out.
    Silence,
    /// It is carried out, and nothing answers before the time-out.
    AnsweredTooLate,
    /// The connection is reset before it arrives.
    Reset,
    /// The function dies just before it goes out.
    DiesBefore,
    /// The function dies after it was carried out, before it knows.
    DiesAfter,
}

impl Kind {
    const ALL: [Self; 10] = [
        Self::ServerFault,
        Self::AnswerLost,
        Self::Throttled,
        Self::Conflict,
        Self::Rejected,
        Self::Silence,
        Self::AnsweredTooLate,
        Self::Reset,
        Self::DiesBefore,
        Self::DiesAfter,
    ];

    const fn as_str(self) -> &'static str {
        match self {
            Self::ServerFault => "server-fault",
            Self::AnswerLost => "answer-lost",
            Self::Throttled => "throttled",
            Self::Conflict => "conflict",
            Self::Rejected => "rejected",
            Self::Silence => "silence",
            Self::AnsweredTooLate => "answered-too-late",
            Self::Reset => "reset",
            Self::DiesBefore => "dies-before",
            Self::DiesAfter => "dies-after",
        }
    }

    /// A dead function makes no further call.
    const fn can_last(self) -> bool {
        !matches!(self, Self::DiesBefore | Self::DiesAfter)
    }

    /// How it looks for `call`; `None` where no such call can meet it.
    fn befall(self, call: &Call) -> Option<Fault> {
        let entries = call.body["TransactItems"].as_array().map(Vec::len);
        let is_send = call.operation == SEND;
        let is_read = matches!(call.operation.as_str(), "GetItem" | "BatchGetItem" | "Query");
        match self {
            Self::ServerFault => Some(Fault::refused("InternalServerError")),
            Self::AnswerLost => Some(Fault::AnswerLost),
            Self::Throttled => Some(match entries {
                Some(entries) => cancelled("ThrottlingError", entries),
                None => Fault::refused("ThrottlingException"),
            }),
            Self::Conflict if is_send || is_read => None,
            Self::Conflict => Some(match entries {
                Some(entries) => cancelled("TransactionConflict", entries),
                None => Fault::refused("TransactionConflictException"),
            }),
            Self::Rejected => is_send.then(|| rejected(call)),
            Self::Silence => Some(Fault::Silence),
            Self::AnsweredTooLate => Some(Fault::AnsweredTooLate),
            Self::Reset => Some(Fault::Reset),
            Self::DiesBefore => Some(Fault::DiesBefore),
            Self::DiesAfter => Some(Fault::DiesAfter),
        }
    }
}

/// DynamoDB cancels a transaction because of its first entry.
fn cancelled(code: &str, entries: usize) -> Fault {
    let mut reasons = vec![("None", None); entries];
    if let Some(first) = reasons.first_mut() {
        *first = (code, None);
    }
    Fault::cancelled(&reasons)
}

/// SQS answers, and takes no entry.
fn rejected(call: &Call) -> Fault {
    let entries = call.body["Entries"].as_array().into_iter().flatten();
    let failed: Vec<Value> = entries
        .map(|entry| json!({"Id": entry["Id"], "SenderFault": true, "Code": "InvalidMessageContents"}))
        .collect();
    Fault::Answer(200, json!({"Successful": [], "Failed": failed}))
}

/// A kind of fault, and whether it lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Trouble {
    kind: Kind,
    /// From that call on until the invocation is over; else it befalls that call alone.
    lasts: bool,
}

impl Trouble {
    /// All there are.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        Kind::ALL.into_iter().flat_map(|kind| {
            let once = Self { kind, lasts: false };
            let lasting = kind.can_last().then_some(Self { kind, lasts: true });
            [once].into_iter().chain(lasting)
        })
    }

    /// Whether `call` can meet it.
    pub(super) fn can_befall(self, call: &Call) -> bool {
        self.kind.befall(call).is_some()
    }

    /// What it does to call number `number` where it begins at number `first`.
    pub(super) fn at(self, first: usize, number: usize, call: &Call) -> Option<Fault> {
        let hit = number == first || (self.lasts && number > first);
        hit.then(|| self.kind.befall(call)).flatten()
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lasting = if self.lasts { "-and-on" } else { "" };
        write!(f, "{}{lasting}", self.kind.as_str())
    }
}
