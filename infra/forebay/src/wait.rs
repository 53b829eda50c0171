//! Waiting, always with a bound: for something to become ready, and for the user to end it.

use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::error::{Attempt as _, Error};

/// Pause between two looks at something that is not ready yet.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Asks `probe` until it has an answer. `None` when `bound` has passed without one.
pub(crate) async fn until<T>(
    bound: Duration,
    mut probe: impl AsyncFnMut() -> Result<Option<T>, Error>,
) -> Result<Option<T>, Error> {
    let asking = async {
        let mut ticks = tokio::time::interval(POLL_INTERVAL);
        loop {
            ticks.tick().await;
            if let Some(answer) = probe().await? {
                return Ok(Some(answer));
            }
        }
    };
    tokio::time::timeout(bound, asking).await.unwrap_or(Ok(None))
}

/// The exit code of what Ctrl-C ended before it was done, as shells have it: 128 and the signal's number.
pub const INTERRUPTED: u8 = 130;

/// How a piece of work came to its end.
#[derive(Debug)]
pub enum Ended<T> {
    /// It finished.
    Done(T),
    /// The user or the system asked the command to end; the work was dropped.
    Interrupted,
}

/// Listens for Ctrl-C, for SIGTERM and for a terminal that is closed, from the moment it is made, so that none of them can
/// kill the command before it has ended its children.
#[derive(Debug)]
pub(crate) struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
}

impl Interrupts {
    /// Starts listening.
    pub(crate) fn listen() -> Result<Self, Error> {
        let listen = |kind| signal(kind).attempting(|| "listen for signals".to_owned(), "report this as a bug");
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hang_up: listen(SignalKind::hangup())?,
        })
    }

    /// Runs `work` until it is done or a signal comes.
    pub(crate) async fn guard<T>(&mut self, work: impl Future<Output = T>) -> Ended<T> {
        tokio::select! {
            biased;
            _ = self.interrupt.recv() => Ended::Interrupted,
            _ = self.terminate.recv() => Ended::Interrupted,
            _ = self.hang_up.recv() => Ended::Interrupted,
            value = work => Ended::Done(value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn waiting_ends_at_its_bound() {
        let never = until(Duration::from_secs(3), async || Ok(None::<()>)).await;
        assert!(matches!(never, Ok(None)));
    }

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn waiting_ends_with_the_first_answer() {
        let mut looks = 0;
        let answer = until(Duration::from_secs(3), async || {
            looks += 1;
            Ok((looks == 3).then_some(looks))
        });
        assert!(matches!(answer.await, Ok(Some(3))));
    }
}
