//! Counts what ledger calls cost: how many follow one another, and the units that they are billed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aws_sdk_dynamodb::operation::batch_get_item::{BatchGetItemInput, BatchGetItemOutput};
use aws_sdk_dynamodb::operation::batch_write_item::{BatchWriteItemInput, BatchWriteItemOutput};
use aws_sdk_dynamodb::operation::get_item::{GetItemInput, GetItemOutput};
use aws_sdk_dynamodb::operation::put_item::{PutItemInput, PutItemOutput};
use aws_sdk_dynamodb::operation::query::{QueryInput, QueryOutput};
use aws_sdk_dynamodb::operation::transact_write_items::{TransactWriteItemsInput, TransactWriteItemsOutput};
use aws_sdk_dynamodb::operation::update_item::{UpdateItemInput, UpdateItemOutput};
use aws_sdk_dynamodb::types::{AttributeValue, ConsumedCapacity, ReturnConsumedCapacity};
use aws_smithy_runtime_api::box_error::BoxError;
use aws_smithy_runtime_api::client::interceptors::context::{
    BeforeSerializationInterceptorContextMut, BeforeSerializationInterceptorContextRef, FinalizerInterceptorContextRef,
    Input, Output,
};
use aws_smithy_runtime_api::client::interceptors::{Intercept, dyn_dispatch_hint};
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::config_bag::ConfigBag;

/// What was counted between two looks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counts {
    /// Calls, those beside one another included.
    pub calls: usize,
    /// Calls that had to follow one another: the longest chain of calls that did not overlap.
    pub in_a_row: usize,
    /// Write units with indexes, of calls that succeeded.
    pub write_units: f64,
    /// Read units.
    pub read_units: f64,
    /// Write units of calls whose condition failed. DynamoDB bills them without reporting them: computed from the items.
    pub refused_units: f64,
}

/// Counts every call of the DynamoDB clients that it is given to.
#[derive(Clone, Debug, Default)]
pub struct Counter {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    /// Ticks at every start and end of a call, so that overlaps are seen without a clock.
    tick: usize,
    starts: Vec<Started>,
    spans: Vec<(usize, usize)>,
    counts: Counts,
}

/// A call under way.
#[derive(Debug, Default)]
struct Started {
    tick: usize,
    /// What it is billed if its condition fails.
    units_if_refused: f64,
}

impl Counter {
    /// What was counted since the last look.
    #[must_use]
    pub fn take(&self) -> Counts {
        let mut state = self.state();
        let mut spans = std::mem::take(&mut state.spans);
        spans.sort_by_key(|(_, end)| *end);
        let mut counts = std::mem::take(&mut state.counts);
        counts.calls = spans.len();
        let mut last_end = 0;
        for (start, end) in spans {
            if start >= last_end {
                counts.in_a_row += 1;
                last_end = end;
            }
        }
        counts
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[dyn_dispatch_hint]
impl Intercept for Counter {
    fn name(&self) -> &'static str {
        "Counter"
    }

    fn read_before_execution(
        &self,
        _context: &BeforeSerializationInterceptorContextRef<'_>,
        _cfg: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let mut state = self.state();
        state.tick += 1;
        let tick = state.tick;
        state.starts.push(Started {
            tick,
            units_if_refused: 0.0,
        });
        Ok(())
    }

    fn modify_before_serialization(
        &self,
        context: &mut BeforeSerializationInterceptorContextMut<'_>,
        _components: &RuntimeComponents,
        _cfg: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        ask_for_units(context.input_mut());
        // No other call can have begun since: nothing waits between this hook and the one before.
        if let Some(started) = self.state().starts.last_mut() {
            started.units_if_refused = units_if_refused(context.input());
        }
        Ok(())
    }

    fn read_after_execution(
        &self,
        context: &FinalizerInterceptorContextRef<'_>,
        _components: &RuntimeComponents,
        _cfg: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let mut state = self.state();
        state.tick += 1;
        let end = state.tick;
        // Calls that overlap are alike for the longest chain, so that it does not matter which of them this one was.
        let started = state.starts.pop().unwrap_or_default();
        state.spans.push((started.tick, end));
        match context.output_or_error() {
            Some(Ok(output)) => {
                let (writes, reads) = units(output);
                state.counts.write_units += writes;
                state.counts.read_units += reads;
            }
            Some(Err(_)) | None => state.counts.refused_units += started.units_if_refused,
        }
        Ok(())
    }
}

/// Asks DynamoDB to say what the call cost, indexes included.
fn ask_for_units(input: &mut Input) {
    let wanted = Some(ReturnConsumedCapacity::Indexes);
    if let Some(input) = input.downcast_mut::<PutItemInput>() {
        input.return_consumed_capacity = wanted;
    } else if let Some(input) = input.downcast_mut::<UpdateItemInput>() {
        input.return_consumed_capacity = wanted;
    } else if let Some(input) = input.downcast_mut::<TransactWriteItemsInput>() {
        input.return_consumed_capacity = wanted;
    } else if let Some(input) = input.downcast_mut::<BatchWriteItemInput>() {
        input.return_consumed_capacity = wanted;
    } else if let Some(input) = input.downcast_mut::<BatchGetItemInput>() {
        input.return_consumed_capacity = wanted;
    } else if let Some(input) = input.downcast_mut::<GetItemInput>() {
        input.return_consumed_capacity = wanted;
    } else if let Some(input) = input.downcast_mut::<QueryInput>() {
        input.return_consumed_capacity = wanted;
    }
}

/// Write and read units that an answer reports.
fn units(output: &Output) -> (f64, f64) {
    let one = |capacity: Option<&ConsumedCapacity>| capacity.and_then(ConsumedCapacity::capacity_units).unwrap_or(0.0);
    let many = |capacity: &[ConsumedCapacity]| capacity.iter().filter_map(ConsumedCapacity::capacity_units).sum();
    if let Some(output) = output.downcast_ref::<PutItemOutput>() {
        (one(output.consumed_capacity()), 0.0)
    } else if let Some(output) = output.downcast_ref::<UpdateItemOutput>() {
        (one(output.consumed_capacity()), 0.0)
    } else if let Some(output) = output.downcast_ref::<TransactWriteItemsOutput>() {
        (many(output.consumed_capacity()), 0.0)
    } else if let Some(output) = output.downcast_ref::<BatchWriteItemOutput>() {
        (many(output.consumed_capacity()), 0.0)
    } else if let Some(output) = output.downcast_ref::<BatchGetItemOutput>() {
        (0.0, many(output.consumed_capacity()))
    } else if let Some(output) = output.downcast_ref::<GetItemOutput>() {
        (0.0, one(output.consumed_capacity()))
    } else if let Some(output) = output.downcast_ref::<QueryOutput>() {
        (0.0, one(output.consumed_capacity()))
    } else {
        (0.0, 0.0)
    }
}

/// Write units of a put, or of a transaction of puts, whose condition fails: those of its items, in a transaction twice, and
/// none for indexes.
fn units_if_refused(input: &Input) -> f64 {
    if let Some(input) = input.downcast_ref::<PutItemInput>() {
        input.item().map_or(1.0, item_units)
    } else if let Some(input) = input.downcast_ref::<TransactWriteItemsInput>() {
        let puts = input.transact_items().iter().filter_map(|item| item.put());
        puts.map(|put| 2.0 * item_units(put.item())).sum()
    } else {
        // An update is billed by the row that it would have changed: one unit for every row of ours but a delivery's.
        1.0
    }
}

fn item_units(item: &HashMap<String, AttributeValue>) -> f64 {
    let bytes: usize = item.iter().map(|(name, value)| name.len() + value_bytes(value)).sum();
    f64::from(u32::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX))
}

/// Bytes of one write unit.
const UNIT_BYTES: usize = 1_024;

/// Size of a value
/// (<https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/CapacityUnitCalculations.html>).
fn value_bytes(value: &AttributeValue) -> usize {
    match value {
        AttributeValue::S(text) => text.len(),
        AttributeValue::N(digits) => digits.len().div_ceil(2) + 1,
        AttributeValue::B(bytes) => bytes.as_ref().len(),
        AttributeValue::Ss(texts) => texts.iter().map(String::len).sum(),
        AttributeValue::L(list) => 3 + list.iter().map(|value| 1 + value_bytes(value)).sum::<usize>(),
        AttributeValue::M(map) => {
            3 + map
                .iter()
                .map(|(name, value)| 1 + name.len() + value_bytes(value))
                .sum::<usize>()
        }
        AttributeValue::Bool(_) | AttributeValue::Bs(_) | AttributeValue::Ns(_) | AttributeValue::Null(_) | _ => 1,
    }
}
