//! Choosing a kernel: the rows of the list that implement the operator, those of them that serve such a call, and of these
//! the user's, the tuned one, or the first that is preferred. Nothing else decides what runs; the steps of an operator that is
//! planned by its definition have the first that is preferred.
//!
//! The order is: a user's kernel, the tuning cache, the rows in the order of the list. A plan that comes out of here
//! is within the limits of the device, and carries the hash of what it launches.

use crate::kernel::settings::{self, Setting};
use crate::kernel::{Request, RowInvariance};
use crate::overrides::Overrides;
use crate::plan::{NodePlan, Phase};
use crate::serve::{finish_built_in, plan_preferred, rows_of, served_name, whole_request, with_setting};
use tapml_device::DeviceInfo;
use tapml_graph::{Context, Error, Op, Result, TensorType};

/// Plans one node in one phase: chooses the kernel, specialises it and checks it against the device's limits and features.
///
/// `inputs` are types with symbolic sizes, as in the graph. The user's kernel is taken if there is one, else the one that
/// [`Overrides::choose`] tells of, else the first that is preferred for such a node on such a device. Fails with
/// [`tapml_graph::ErrorKind::Unsupported`] if the device or the kernels cannot serve this operator at these types; the
/// details name `op` and, where one is the reason, `limit`, `asked` and `offered`.
///
/// An operator without any row, and one whose rows all refuse the types, are both `Unsupported`; the message tells
/// which.
pub fn plan_node(
    op: &Op,
    inputs: &[TensorType],
    phase: Phase,
    info: &DeviceInfo,
    overrides: &Overrides,
) -> Result<NodePlan> {
    let outputs = op.infer(inputs)?;
    let request = whole_request(op, inputs, &outputs, phase, info);
    let planned = choose_plan(&request, overrides).and_then(|plan| finish_plan(plan, &request, overrides));
    planned.map_err(|e| e.with_detail("op", op.name())).context(|| op.name().to_string())
}

/// Every kernel for one node on a device in one phase, the chosen one first. Fails as [`plan_node`] if there is none.
///
/// A user's kernels and a tuning cache play no part. Kernels that fail to plan are left out.
pub fn plan_variants(
    op: &Op,
    inputs: &[TensorType],
    phase: Phase,
    info: &DeviceInfo,
) -> Result<Vec<NodePlan>> {
    // Only built-in kernels are compared with each other.
    let none = Overrides::default();
    let mut plans = vec![plan_node(op, inputs, phase, info, &none)?];
    let outputs = op.infer(inputs)?;
    let request = whole_request(op, inputs, &outputs, phase, info);
    for row in rows_of(op.name()) {
        // The chosen one stands in front already; rows with two names serve a node under one of them.
        if let Ok(plan) = row.serve(&request)
            && plan.kernel != plans[0].kernel
        {
            plans.push(finish_plan(plan, &request, &none)?);
        }
    }
    Ok(plans)
}

/// As [`plan_variants`], each kernel followed by itself with those settings that make a difference at these types.
///
/// Settings that lead to the same launches as a plan before them are left out, by their hashes.
pub fn plan_settings(
    op: &Op,
    inputs: &[TensorType],
    phase: Phase,
    info: &DeviceInfo,
) -> Result<Vec<NodePlan>> {
    let outputs = op.infer(inputs)?;
    let request = whole_request(op, inputs, &outputs, phase, info);
    let mut all: Vec<NodePlan> = Vec::new();
    for plan in plan_variants(op, inputs, phase, info)? {
        let kernel = plan.kernel.clone();
        all.push(plan);
        let Some(row) = rows_of(op.name()).find(|row| row.names(&kernel)) else { continue };
        for setting in settings::rows_of(&kernel).map(|row| row.setting) {
            let Some(set) = with_setting(row, &kernel, setting, &request)? else { continue };
            let set = finish_plan(set, &request, &Overrides::default())?;
            if all.iter().all(|known| known.hash != set.hash) {
                all.push(set);
            }
        }
    }
    Ok(all)
}

/// The plan to take.
/// See [`plan_node`] for the order.
fn choose_plan(request: &Request, overrides: &Overrides) -> Result<NodePlan> {
    let op = request.op.name();
    if let Some(plan) = users(request, overrides)? {
        return Ok(plan);
    }
    if overrides.is_row_invariant() {
        return plan_row_invariant(request);
    }
    if let Some(choice) = overrides.choice(request.op, request.inputs) {
        // A choice of another version may name a kernel that there is not: it is passed over without an error.
        let (kernel, setting) = Setting::parse(choice);
        if let Some(row) = rows_of(op).find(|row| row.names(kernel))
            && let Some(plan) = with_setting(row, kernel, setting, request)?
        {
            return Ok(plan);
        }
    }
    plan_preferred(request)
}

/// The plan of the first row that is preferred, with the setting by which results of a row depend on that row alone.
///
/// # Errors
/// `Unsupported` if there is none.
fn plan_row_invariant(request: &Request) -> Result<NodePlan> {
    let is_decode = request.phase == Phase::Decode;
    // A call of one row is planned as one of many: servers run no other kernels for it.
    let request = &Request { phase: Phase::Prefill, ..*request };
    let op = request.op.name();
    for row in rows_of(op).filter(|row| (row.preferred)(request)) {
        let Some(RowInvariance { decode, prefill }) = row.row_invariant else { continue };
        let setting = if is_decode { decode } else { prefill };
        for name in std::iter::once(row.name).chain(row.also) {
            // A setting of a kernel's other name is none of its own.
            if let Some(plan) = with_setting(row, name, setting, request)? {
                return Ok(plan);
            }
        }
    }
    let text = format!("no kernel for operator `{op}` whose rows are independent of each other");
    Err(Error::unsupported(text))
}

/// The plan of the row that a user's kernel takes the place of, if there is such a kernel and the row serves the node.
///
/// Settings count as kernels of their own: a user can replace one of them and leave the default.
fn users(request: &Request, overrides: &Overrides) -> Result<Option<NodePlan>> {
    let op = served_name(request.op.name());
    if !overrides.serves(op) {
        return Ok(None);
    }
    for row in rows_of(op) {
        let names = std::iter::once(row.name).chain(row.also);
        for name in names {
            let settings = settings::rows_of(name).map(|row| row.setting);
            for setting in std::iter::once(Setting::default()).chain(settings) {
                if overrides.replaces(&setting.name(name))
                    && let Some(plan) = with_setting(row, name, setting, request)?
                {
                    return Ok(Some(plan));
                }
            }
        }
    }
    Ok(None)
}

/// Puts a user's kernel in, checks the limits again, because its workgroups may be larger, and computes the hash.
fn finish_plan(mut plan: NodePlan, request: &Request, overrides: &Overrides) -> Result<NodePlan> {
    overrides.apply(served_name(request.op.name()), &mut plan)?;
    finish_built_in(plan, request)
}
