//! The only place that writes to the terminal: results on standard output, progress on standard error.

use std::fmt::Display;
use std::io::{self, Write};

use serde::Serialize;
use tokio::time::Instant;
use tracing::Level;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::prelude::*;

use crate::error::{Attempt as _, Error};

const STDOUT_REMEDY: &str = "check where standard output goes";

/// How results are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// For people.
    Text,
    /// One JSON value a line, for programs.
    Json,
}

/// Lets our own libraries' warnings out on standard error: a row that a listing had to skip must not go unseen. The SDK's
/// failures reach the user as errors, and its warnings repeat whole requests.
pub(crate) fn hear_warnings() {
    let ours = Targets::new().with_targets(["forebay_aws", "forebay_core"].map(|name| (name, Level::WARN)));
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(io::stderr)
        .with_ansi(false)
        .with_target(false)
        .without_time();
    tracing_subscriber::registry().with(lines.with_filter(ours)).init();
}

/// Where a command's words go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    format: Format,
}

impl Output {
    /// Output in `format`.
    pub(crate) fn new(format: Format) -> Self {
        Self { format }
    }

    /// Writes one result: its text for people, its JSON for programs.
    pub(crate) fn result<T: Display + Serialize>(self, value: &T) -> Result<(), Error> {
        match self.format {
            Format::Text => self.bytes(format!("{value}\n").as_bytes()),
            Format::Json => self.json(value),
        }
    }

    fn json(self, value: &impl Serialize) -> Result<(), Error> {
        let mut line =
            serde_json::to_vec(value).attempting(|| "write a result as JSON".to_owned(), "report this as a bug")?;
        line.push(b'\n');
        self.bytes(&line)
    }

    /// Writes a line that only people need.
    pub(crate) fn heading(self, line: &str) -> Result<(), Error> {
        match self.format {
            Format::Text => self.bytes(format!("{line}\n").as_bytes()),
            Format::Json => Ok(()),
        }
    }

    /// Writes a list: its lines for people, its values one a line for programs.
    pub(crate) fn list<T: Serialize>(self, values: &[T], lines: impl FnOnce() -> Vec<String>) -> Result<(), Error> {
        match self.format {
            Format::Text => lines().iter().try_for_each(|line| self.heading(line)),
            Format::Json => values.iter().try_for_each(|value| self.json(value)),
        }
    }

    /// Writes bytes as they are.
    pub(crate) fn bytes(self, bytes: &[u8]) -> Result<(), Error> {
        write_to(&mut io::stdout().lock(), bytes).attempting(|| "write to standard output".to_owned(), STDOUT_REMEDY)
    }

    /// Says on standard error what is going on. Nobody reading it is no reason to stop.
    pub(crate) fn note(self, text: impl Display) {
        drop(writeln!(io::stderr().lock(), "forebay: {text}"));
    }

    /// Says that a step starts, runs it, and says how long it took.
    pub(crate) async fn step<T>(self, name: &str, step: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        self.note(format_args!("{name} …"));
        let started = Instant::now();
        let value = step.await?;
        self.note(format_args!("{name}: {:.1} s", started.elapsed().as_secs_f64()));
        Ok(value)
    }

    /// Says what failed and what to do about it.
    pub(crate) fn failure(self, error: &Error) {
        match self.format {
            Format::Text => {
                self.note(format_args!("could not {error}"));
                self.note(format_args!("→ {}", error.remedy()));
            }
            Format::Json => {
                let line = serde_json::json!({ "failed": error.to_string(), "remedy": error.remedy() });
                drop(writeln!(io::stderr().lock(), "{line}"));
            }
        }
    }
}

/// Writes `bytes` whole. A closed pipe is a reader that has seen enough, as `head` has after its first lines, and no failure.
fn write_to(output: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    match output.write_all(bytes).and_then(|()| output.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn a_reader_that_has_seen_enough_is_no_failure() {
        let (mut reader, mut writer) = io::pipe().unwrap();
        write_to(&mut writer, b"first\n").unwrap();
        let mut seen = [0; 6];
        reader.read_exact(&mut seen).unwrap();
        assert_eq!(&seen, b"first\n");
        drop(reader);
        write_to(&mut writer, b"second\n").unwrap();
    }

    #[test]
    fn output_that_cannot_be_written_is_a_failure() {
        let mut full: &mut [u8] = &mut [0; 3];
        assert_eq!(
            write_to(&mut full, b"first\n").unwrap_err().kind(),
            io::ErrorKind::WriteZero
        );
    }
}
