//! `forebay poll now`: a run of the poller besides those of its schedule.

use std::fmt;

use clap::{Args, Subcommand};
use forebay_aws::clock::System;
use forebay_aws::metrics::system_time;
use forebay_core::ports::TimeAndChance as _;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::connect::{Callable, StackRef};
use crate::error::Error;
use crate::http::Reply;
use crate::invoke::invoke;
use crate::output::Output;
use crate::stack::POLLER_FUNCTION;

/// What a throttled call is answered with.
const TOO_MANY: u16 = 429;
/// What is always shown, and in which order; the rest follows where it says something.
const SHOWN_FIRST: [&str; 4] = ["sources", "polls", "requests", "accepted"];
/// Where an answer that is no report says why: a function's, and the service's in its spellings.
const MESSAGES: [&str; 3] = ["errorMessage", "Message", "message"];
/// Longest piece of an answer that is shown where it is none.
const SHOWN_CHARS_MAX: usize = 600;
const LOGS_REMEDY: &str = "look into the poller's log";

/// What to do about polling.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum PollCommand {
    /// Start a run of the poller, wait for its end, and print its report
    ///
    /// It polls what is due; `forebay sources` shows when that is. What has been polled a moment ago waits for its interval,
    /// which GitHub asks for.
    Now(NowArgs),
}

/// Which poller.
#[derive(Args, Clone, Debug)]
pub(crate) struct NowArgs {
    /// Name of the function, the stack's output `PollerFunctionName` [default: that of the local stack]
    #[arg(long, value_name = "NAME")]
    function: Option<String>,
    #[command(flatten)]
    stack: StackRef,
}

/// The report of a run, as it came.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(transparent)]
struct Report(Map<String, Value>);

impl Report {
    /// The report that a call of `function` was answered with, or why there is none.
    fn read(function: &str, reply: &Reply) -> Result<Self, Error> {
        let failed = |what: &str, remedy: &str| Error::new(format!("poll now with {function}: {what}"), remedy);
        if reply.status == TOO_MANY {
            return Err(failed("a run is under way", "wait for its end, and try again"));
        }
        let answer: Option<Map<String, Value>> = serde_json::from_slice(&reply.body).ok();
        let word = |answer: &Map<String, Value>, name: &str| answer.get(name)?.as_str().map(str::to_owned);
        let message = answer
            .as_ref()
            .and_then(|answer| MESSAGES.iter().find_map(|name| word(answer, name)));
        match (answer, message) {
            (_, Some(message)) => Err(failed(&message, LOGS_REMEDY)),
            (Some(report), None) if reply.is_success() => Ok(Self(report)),
            _ => {
                let shown: String = reply.text().chars().take(SHOWN_CHARS_MAX).collect();
                Err(failed(
                    &format!("it was answered {}: {shown}", reply.status),
                    LOGS_REMEDY,
                ))
            }
        }
    }

    /// What is shown of it: a name and a value each.
    fn lines(&self) -> Vec<(&str, String)> {
        let first = SHOWN_FIRST.iter().filter_map(|name| Some((*name, self.0.get(*name)?)));
        let says = |value: &Value| !(value.is_null() || value.as_u64() == Some(0));
        let rest = self.0.iter().map(|(name, value)| (name.as_str(), value));
        let rest = rest.filter(|(name, value)| !SHOWN_FIRST.contains(name) && says(value));
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        first.chain(rest).map(|(name, value)| (name, text(value))).collect()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = self.lines();
        let width = lines.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
        let lines = lines
            .iter()
            .map(|(name, value)| format!("  {:width$}  {value}", name.replace('_', " ")));
        f.write_str(&lines.collect::<Vec<_>>().join("\n"))
    }
}

/// Does what is asked.
pub(crate) async fn run(command: &PollCommand, output: Output) -> Result<(), Error> {
    let PollCommand::Now(args) = command;
    let name = args.function.as_deref();
    let poller = Callable::find(&args.stack, name, POLLER_FUNCTION, "PollerFunctionName").await?;
    let reply = invoke(&poller, system_time(System.now())).await?;
    let report = Report::read(&poller.function, &reply)?;
    if report.0.get("polls").and_then(Value::as_u64) == Some(0) {
        output.note("nothing was due, or its credential has to wait; `cargo forebay sources` shows when that will be");
    }
    output.result(&report)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(status: u16, body: &str) -> Result<Report, Error> {
        let reply = Reply {
            status,
            body: body.as_bytes().to_vec(),
        };
        Report::read("poller", &reply)
    }

    #[test]
    fn people_see_what_there_is_to_say_and_programs_all_of_it() {
        let body = "{\"accepted\":0,\"backoff_until\":\"2026-11-16T15:40:00Z\",\"gaps\":0,\"not_modified\":1,\"polls\":2,\
                    \"requests\":3,\"sources\":3}";
        let report = read(200, body).unwrap();
        let expected = "  sources        3\n  polls          2\n  requests       3\n  accepted       0\n  \
                        backoff until  2026-11-16T15:40:00Z\n  not modified   1";
        assert_eq!(report.to_string(), expected);
        assert_eq!(serde_json::to_string(&report).unwrap(), body);
    }

    #[test]
    fn what_is_no_report_says_why_there_is_none() {
        #[track_caller]
        fn check(status: u16, body: &str, says: &str) {
            let error = read(status, body).expect_err("no report");
            assert_eq!(error.to_string(), format!("poll now with poller: {says}"));
        }
        check(429, "{\"Message\": \"Rate Exceeded.\"}", "a run is under way");
        // A function that failed is answered 200.
        let failed = "{\"errorType\":\"&str\",\"errorMessage\":\"poll GitHub: read secret\"}";
        check(200, failed, "poll GitHub: read secret");
        let missing = "{\"Message\":\"Function not found: poller\",\"Type\":\"User\"}";
        check(404, missing, "Function not found: poller");
        check(200, "null", "it was answered 200: null");
        check(503, "<html>", "it was answered 503: <html>");
    }
}
