//! What a command could not do, said for the person who ran it.

use std::error::Error as StdError;
use std::fmt;

/// A cause, kept for the text.
type Cause = Box<dyn StdError + Send + Sync>;

/// What was attempted, why it failed, and what to do about it.
///
/// Nobody matches on this: every failure of the command ends at its user, so it has one shape.
#[derive(Debug)]
pub struct Error {
    attempted: String,
    remedy: String,
    source: Option<Cause>,
}

impl Error {
    /// A failure without a cause below it: `attempted` says what and on what, `remedy` what to do now.
    pub fn new(attempted: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            attempted: attempted.into(),
            remedy: remedy.into(),
            source: None,
        }
    }

    /// A failure with its cause.
    pub fn because(attempted: impl Into<String>, remedy: impl Into<String>, cause: impl Into<Cause>) -> Self {
        Self {
            source: Some(cause.into()),
            ..Self::new(attempted, remedy)
        }
    }

    /// What to do about it.
    pub fn remedy(&self) -> &str {
        &self.remedy
    }
}

impl fmt::Display for Error {
    /// The attempt and its causes in one line, without the remedy.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.attempted)?;
        let mut cause = self.source();
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            // One of ours has told its own causes already.
            cause = if error.is::<Self>() { None } else { error.source() };
        }
        Ok(())
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|cause| cause as &(dyn StdError + 'static))
    }
}

/// Turns any error into ours at the call that met it.
pub(crate) trait Attempt<T> {
    /// The value, or what was `attempted` with this error as its cause, and the `remedy`.
    fn attempting(self, attempted: impl FnOnce() -> String, remedy: &str) -> Result<T, Error>;
}

impl<T, E: Into<Cause>> Attempt<T> for Result<T, E> {
    fn attempting(self, attempted: impl FnOnce() -> String, remedy: &str) -> Result<T, Error> {
        self.map_err(|cause| Error::because(attempted(), remedy, cause))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_the_attempt_and_every_cause_in_one_line() {
        let inner: Result<(), _> = Err(std::io::Error::other("disk on fire"));
        let middle = inner.attempting(|| "read a.json".to_owned(), "mend the disk");
        let outer = middle.attempting(|| "play the recordings".to_owned(), "try again");
        let error = outer.expect_err("the innermost step failed");
        assert_eq!(error.to_string(), "play the recordings: read a.json: disk on fire");
        assert_eq!(error.remedy(), "try again");
    }
}
