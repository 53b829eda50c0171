//! Looks through what the functions logged for what no log may contain (invariant 8).

use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use super::secrecy::Secrecy;
use crate::control::Control;
use crate::error::{Attempt as _, Error};
use crate::stack::Stack;
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

/// Looks through the webhook's log and the emulator's own. Each delivery makes the webhook log a line at least: with fewer
/// than `deliveries` there is no telling.
pub(super) async fn check(
    control: &Control,
    stack: &Stack,
    emulator_log: &Path,
    secrecy: &Secrecy,
    deliveries: usize,
) -> Result<Logs, Error> {
    let group = &stack.webhook()?.log_group;
    let mut lines = Vec::new();
    // What arrived counts, in any case: an engine may be silent about the ends.
    let complete = wait::until(ARRIVAL, async || {
        lines = control.log_lines(group).await?;
        let ended = lines.iter().filter(|line| line.starts_with(END)).count();
        Ok((ended >= deliveries).then_some(()))
    });
    complete.await?;
    let lines = functions(lines);
    let own = std::fs::read_to_string(emulator_log)
        .attempting(|| format!("read {}", emulator_log.display()), "run this again")?;
    let mut problems = secrecy.leaks(&lines);
    let own: Vec<String> = own.lines().map(str::to_owned).collect();
    problems.extend(secrecy.leaks(&own).iter().map(|leak| format!("the emulator's {leak}")));
    if lines.len() < deliveries.max(1) {
        problems.push(format!("{} log lines for {deliveries} deliveries", lines.len()));
    }
    Ok(Logs {
        lines: lines.len(),
        looked_for: secrecy.len(),
        problems,
    })
}

/// The lines that the functions wrote themselves.
fn functions(lines: Vec<String>) -> Vec<String> {
    let is_own = |line: &String| !PLATFORM.iter().any(|begin| line.starts_with(begin));
    lines.into_iter().filter(is_own).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_platforms_own_lines_do_not_count() {
        let lines = [
            "START RequestId: 1 Version: 2",
            "{\"level\":\"INFO\"}",
            "END RequestId: 1",
        ];
        assert_eq!(functions(lines.map(str::to_owned).to_vec()), ["{\"level\":\"INFO\"}"]);
    }
}
