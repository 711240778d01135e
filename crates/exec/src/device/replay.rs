//! Replay of single calls on a device, many per submission: calls are sorted by plan, cut into batches, and a batch that
//! fails is halved until the call that fails stands alone.
//!
//! Batches bound memory and give results early. Halving finds the call that fails without running each
//! alone.

mod batch;
mod layout;
mod ready;

pub(super) use batch::POISON;

use super::plans::{CompiledPlan, PlanKey};
use super::state::PlatformState;
use crate::{Call, Sink};
use ready::ReadyCall;
use std::collections::HashMap;
use std::sync::Arc;
use tapml_device::DeviceInfo;
use tapml_graph::{Context, ErrorKind, Result, Tensor, TensorType};
use tapml_kernels::Overrides;

// A submission of more takes long before the first result comes.
/// Most dispatches of one batch.
const DISPATCHES: usize = 1000;

/// Most bytes of inputs, outputs and scratch of one batch, unless a single call needs more.
const BYTES: u64 = 64 << 20;

/// Most bytes of weights of one batch, unless a single call needs more: results come early, and whoever judges them works
/// while the next batch is uploaded.
const WEIGHTS: u64 = 256 << 20;

/// See [`crate::Platform::replay`]. Each call comes with its index.
pub(super) fn replay<'a>(
    inner: &mut PlatformState,
    info: &DeviceInfo,
    overrides: &Overrides,
    calls: impl Iterator<Item = (usize, &'a Call)>,
    sink: &mut Sink<'_>,
) -> Result<()> {
    let items = plan(inner, info, overrides, calls, sink)?;
    let mut rest = items.as_slice();
    while !rest.is_empty() {
        let (batch, after) = rest.split_at(batch_len(rest));
        rest = after;
        run(inner, info, batch, sink)?;
    }
    Ok(())
}

/// Plans every call and sorts them: equal plans together, among them equal weights. Calls that cannot be planned go to
/// the sink with their error.
fn plan<'a>(
    inner: &mut PlatformState,
    info: &DeviceInfo,
    overrides: &Overrides,
    calls: impl Iterator<Item = (usize, &'a Call)>,
    sink: &mut Sink<'_>,
) -> Result<Vec<ReadyCall<'a>>> {
    let mut groups: HashMap<PlanKey, (usize, Result<Arc<CompiledPlan>>)> = HashMap::new();
    let mut items = Vec::new();
    for (index, call) in calls {
        if let Err(e) = call.check() {
            sink(index, Err(e));
            continue;
        }
        let key = PlanKey::of_call(call);
        let next = groups.len();
        let (group, planned) = groups.entry(key.clone()).or_insert_with(|| {
            let PlatformState { device, kernels, plans, .. } = &mut *inner;
            (next, plans.get(&key, &call.op, (info, overrides), device.as_mut(), kernels))
        });
        match planned {
            Ok(planned) => items.push((*group, ReadyCall { index, call, planned: planned.clone() })),
            Err(e) if e.kind() == ErrorKind::DeviceLost => return Err(e.clone()),
            Err(e) => sink(index, Err(e.clone().context(format!("node `{}`", call.node)))),
        }
    }
    // Equal weights side by side: each is uploaded one time.
    items.sort_by(|(a, x), (b, y)| (a, &x.call.weights, x.index).cmp(&(b, &y.call.weights, y.index)));
    Ok(items.into_iter().map(|(_, item)| item).collect())
}

/// How many of these items, at least one, make the next batch.
fn batch_len(items: &[ReadyCall<'_>]) -> usize {
    let (mut dispatches, mut bytes, mut weights) = (0, 0u64, HashMap::new());
    for (i, item) in items.iter().enumerate() {
        dispatches += item.planned.plan.launches.len();
        bytes = bytes.saturating_add(item_bytes(item));
        for (tensor, name) in item.call.inputs.iter().zip(&item.call.weights) {
            if let Some(name) = name {
                weights.insert(name.as_str(), tensor.bytes().len() as u64);
            }
        }
        let full = dispatches > DISPATCHES || bytes > BYTES || weights.values().sum::<u64>() > WEIGHTS;
        if full && i > 0 {
            return i;
        }
    }
    items.len()
}

/// Bytes that the item takes in its batch, weights not counted.
fn item_bytes(item: &ReadyCall<'_>) -> u64 {
    let call = item.call;
    let inputs = call.inputs.iter().zip(&call.weights).filter(|(_, name)| name.is_none());
    let inputs: u64 = inputs.map(|(tensor, _)| tensor.bytes().len() as u64).sum();
    let size =
        |ty: &TensorType| ty.sizes(&call.symbols).ok().and_then(|s| tapml_graph::byte_len(ty.dtype, &s));
    let outputs: u64 = call.output_types.iter().map(|ty| size(ty).unwrap_or(0) as u64).sum();
    let scratch: u64 =
        item.planned.plan.scratch.iter().map(|s| s.bytes().eval(&call.symbols).unwrap_or(0)).sum();
    inputs.saturating_add(outputs).saturating_add(scratch)
}

/// Runs a batch; halves it if it fails. Fails itself only when the device is lost.
fn run(
    inner: &mut PlatformState,
    info: &DeviceInfo,
    items: &[ReadyCall<'_>],
    sink: &mut Sink<'_>,
) -> Result<()> {
    let ran = batch::run(inner, info, items).and_then(|outputs| inner.keep_findings().map(|()| outputs));
    let error = match ran {
        Ok(outputs) => {
            deliver(items, outputs, sink);
            return Ok(());
        }
        Err(e) if e.kind() == ErrorKind::DeviceLost => return Err(e),
        Err(e) => e,
    };
    // Weights of earlier batches may be what fills the memory.
    if error.kind() == ErrorKind::OutOfMemory {
        inner.weights.clear(inner.device.as_mut())?;
    }
    if let [item] = items {
        let retried = match error.kind() {
            ErrorKind::OutOfMemory => {
                batch::run(inner, info, items).and_then(|outputs| inner.keep_findings().map(|()| outputs))
            }
            _ => Err(error),
        };
        match retried.context(|| format!("node `{}`", item.call.node)) {
            Ok(outputs) => deliver(items, outputs, sink),
            Err(e) if e.kind() == ErrorKind::DeviceLost => return Err(e),
            Err(e) => sink(item.index, Err(e)),
        }
        return Ok(());
    }
    let (first, second) = items.split_at(items.len() / 2);
    run(inner, info, first, sink)?;
    run(inner, info, second, sink)
}

/// Hands the outputs of a batch to the sink.
fn deliver(items: &[ReadyCall<'_>], outputs: Vec<Vec<Tensor>>, sink: &mut Sink<'_>) {
    for (item, outputs) in items.iter().zip(outputs) {
        sink(item.index, Ok(outputs));
    }
}
