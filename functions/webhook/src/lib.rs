#![doc = include_str!("../README.md")]

mod answer;
mod handle;
mod keep;
mod report;
mod request;

pub use answer::{Answer, Refusal, Verdict};
pub use handle::{Webhook, refuse_misconfigured};
pub use request::PATH;
