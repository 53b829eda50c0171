//! Looks through what the functions logged for what no log may contain (invariant 8).

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use super::secrecy::Secrecy;
use crate::control::Control;
use crate::error::{Attempt as _, Error};
use crate::stack::{Stack, WEBHOOK_FUNCTION};
use crate::wait;

/// How long the last invocation's lines may take to arrive.
const ARRIVAL: Duration = Duration::from_secs(5);
/// What the platform's own lines begin with: the one that ends an invocation, and the others.
const END: &str = "END RequestId:";
const PLATFORM: [&str; 3] = ["START RequestId:", END, "REPORT RequestId:"];

/// What was found in the logs.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Logs {
    /// Lines of the functions that were looked through.
    pub(super) lines: usize,
    /// Secrets, signatures and texts that were looked for.
    pub(super) looked_for: usize,
    /// What is wrong.
    pub(super) problems: Vec<String>,
}

/// Looks through the log of every function and the emulator's own. Each delivery makes the webhook log a line at least: with
/// fewer than `deliveries` there is no telling. What the others have to do in a demonstration, if anything, is their own matter.
pub(super) async fn check(
    control: &Control,
    stack: &Stack,
    emulator_log: &Path,
    secrecy: &Secrecy,
    deliveries: usize,
) -> Result<Logs, Error> {
    let group = &stack.webhook()?.log_group;
    // What arrived counts, in any case: an engine may be silent about the ends.
    let complete = wait::until(ARRIVAL, async || {
        let lines = control.log_lines(group).await?;
        let ended = lines.iter().filter(|line| line.starts_with(END)).count();
        Ok((ended >= deliveries).then_some(()))
    });
    complete.await?;
    let mut written = BTreeMap::new();
    for (id, function) in &stack.functions {
        written.insert(id.as_str(), functions(control.log_lines(&function.log_group).await?));
    }
    let own = std::fs::read_to_string(emulator_log)
        .attempting(|| format!("read {}", emulator_log.display()), "run this again")?;
    let own: Vec<String> = own.lines().map(str::to_owned).collect();
    Ok(judge(&written, &own, secrecy, deliveries))
}

/// What is found in the functions' lines, by logical id, and in the emulator's own.
fn judge(functions: &BTreeMap<&str, Vec<String>>, emulator: &[String], secrecy: &Secrecy, deliveries: usize) -> Logs {
    let mut problems = Vec::new();
    for (id, lines) in functions {
        problems.extend(secrecy.leaks(lines).iter().map(|leak| format!("{id}'s {leak}")));
    }
    problems.extend(
        secrecy
            .leaks(emulator)
            .iter()
            .map(|leak| format!("the emulator's {leak}")),
    );
    let webhook = functions.get(WEBHOOK_FUNCTION).map_or(0, Vec::len);
    if webhook < deliveries.max(1) {
        problems.push(format!(
            "{webhook} log lines of {WEBHOOK_FUNCTION} for {deliveries} deliveries"
        ));
    }
    Logs {
        lines: functions.values().map(Vec::len).sum(),
        looked_for: secrecy.len(),
        problems,
    }
}

/// The lines that the functions wrote themselves.
fn functions(lines: Vec<String>) -> Vec<String> {
    let is_own = |line: &String| !PLATFORM.iter().any(|begin| line.starts_with(begin));
    lines.into_iter().filter(is_own).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::LOCAL_SECRET;
    use crate::stack::{POLLER_FUNCTION, REAPER_FUNCTION};

    #[test]
    fn the_platforms_own_lines_do_not_count() {
        let lines = [
            "START RequestId: 1 Version: 2",
            "{\"level\":\"INFO\"}",
            "END RequestId: 1",
        ];
        assert_eq!(functions(lines.map(str::to_owned).to_vec()), ["{\"level\":\"INFO\"}"]);
    }
    fn problems(functions: &[(&'static str, &[&str])], emulator: &[&str], deliveries: usize) -> Vec<String> {
        let lines = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>();
        let functions = functions.iter().map(|(id, written)| (*id, lines(written))).collect();
        judge(&functions, &lines(emulator), &Secrecy::default(), deliveries).problems
    }

    #[test]
    fn a_secret_is_found_in_the_log_of_any_function_and_of_the_emulator() {
        let leak = format!("verify with {LOCAL_SECRET}");
        let found = problems(
            &[
                (WEBHOOK_FUNCTION, &["answer delivery"]),
                (POLLER_FUNCTION, &["fine", &leak]),
                (REAPER_FUNCTION, &[&leak]),
            ],
            &[&leak],
            1,
        );
        let expected = [
            "PollerFunction's log line 2 contains the webhook secret",
            "ReaperFunction's log line 1 contains the webhook secret",
            "the emulator's log line 1 contains the webhook secret",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn only_the_webhook_has_to_have_written_anything() {
        let written: &[&str] = &["answer delivery", "answer delivery"];
        assert_eq!(
            problems(&[(WEBHOOK_FUNCTION, written), (REAPER_FUNCTION, &[])], &[], 2),
            [""; 0]
        );
        let few = ["2 log lines of WebhookFunction for 3 deliveries"];
        assert_eq!(
            problems(&[(WEBHOOK_FUNCTION, written), (REAPER_FUNCTION, written)], &[], 3),
            few
        );
        let none = ["0 log lines of WebhookFunction for 0 deliveries"];
        assert_eq!(problems(&[(REAPER_FUNCTION, written)], &[], 0), none);
    }
}
