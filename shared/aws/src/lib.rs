#![doc = include_str!("../README.md")]

pub mod clock;
pub mod config;
pub mod dynamodb;
pub mod fault;
pub mod github;
pub mod http_event;
pub mod metrics;
pub mod secrets;
pub mod shedder;
pub mod sqs;
pub mod sqs_event;
pub mod start;
