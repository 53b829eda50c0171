//! The ledger's rules: one total transition function over the state of an event.
//!
//! Whoever keeps a ledger (memory, DynamoDB) does exactly what [`transition()`] says. The function never looks at a clock:
//! the time of a step is part of the step.

mod limits;
pub mod memory;
mod rows;
mod transition;

pub use limits::{InvalidLimits, Limits};
pub use rows::{
    Admission, Admitted, Admittee, Claimed, DeliveryRow, EventAdmission, EventRow, Lease, Nonce, Reason, Sent, Settled,
    State, Status, Token,
};
pub use transition::{
    Cause, Claim, Ending, Raise, Refused, Renew, Settle, Settlement, Step, Term, Verdict, refusal, transition,
};
