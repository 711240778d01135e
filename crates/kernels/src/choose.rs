//! Choosing a kernel: the rows of the list that implement the operator, those of them that serve such a call, and of these
//! the user's, the tuned one, or the first that is preferred. Nothing else decides what runs.
//!
//! The order is: a user's kernel, the tuning cache, the rows in the order of the list. A plan that comes out of here
//! is within the limits of the device, and carries the hash of what it launches.

use crate::kernel::settings::{self, Setting};
use crate::kernel::{KERNELS, KernelRow, Request};
use crate::overrides::Overrides;
use crate::plan::{Launch, NodePlan, Phase};
use tapml_device::DeviceInfo;
use tapml_graph::{Context, Error, ErrorKind, Op, Result, TensorType};

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
    let request = Request { op, inputs, outputs: &outputs, info, phase, setting: Setting::default() };
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
    let request = Request { op, inputs, outputs: &outputs, info, phase, setting: Setting::default() };
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
    let request = Request { op, inputs, outputs: &outputs, info, phase, setting: Setting::default() };
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

/// The plan of a node by one row of the list under one of its names, with a setting; `None` if it does not serve the node.
///
/// # Errors
/// `Unsupported` also if the row serves the node under its other name, or if other launches do all its work.
pub(crate) fn plan_by(
    row: &KernelRow,
    kernel: &str,
    (op, inputs): (&Op, &[TensorType]),
    phase: Phase,
    info: &DeviceInfo,
    setting: Setting,
) -> Result<NodePlan> {
    let outputs = op.infer(inputs)?;
    let request = Request { op, inputs, outputs: &outputs, info, phase, setting: Setting::default() };
    // Without a setting first: its error says why the row does not serve the node, which `with_setting` drops.
    row.serve(&request)?;
    let plan = with_setting(row, kernel, setting, &request)?;
    let plan = plan.filter(|plan| plan.kernel == setting.name(kernel));
    let plan = plan.ok_or_else(|| Error::unsupported(format!("`{kernel}` does not serve such a node")))?;
    finish_plan(plan, &request, &Overrides::default())
}

/// The name by which kernels serve an operator: that of an operator of others without its version, which is the planner's to
/// tell apart.
fn served_name(op: &str) -> &str {
    op.split_once('@').map_or(op, |(name, _)| name)
}

/// The rows that implement an operator, in the order of the list.
pub fn rows_of(op: &str) -> impl Iterator<Item = &'static KernelRow> {
    let op = served_name(op);
    KERNELS.iter().filter(move |row| row.op() == op)
}

impl KernelRow {
    /// The plan of a node by this kernel. Fails with [`ErrorKind::Unsupported`] where it does not serve such a node, in this
    /// phase, or on this device.
    ///
    /// The checks come in the order of their cost: needs of the device, number of rows, then the planner itself.
    pub fn serve(&self, request: &Request) -> Result<NodePlan> {
        if let Some(missing) = self.needs.missing(request.info) {
            return Err(Error::unsupported(format!("`{}` needs {missing}", self.name)));
        }
        if !self.rows.include(request.row_count()) {
            let count = request.row_count().name();
            return Err(Error::unsupported(format!("`{}` does not serve {count}", self.name)));
        }
        let mut plan = (self.plan)(request)?;
        if let Some(own) = self.text {
            // Only the main launch has another text; those beside it stay as the planner made them.
            let main = plan.launches.iter_mut().filter(|launch| launch.desc.name == plan.kernel);
            main.for_each(|Launch { desc, .. }| {
                (desc.source.file, desc.source.text) = (own.file.into(), own.text.into());
                desc.needs_subgroups = self.needs.subgroups;
            });
        }
        plan.launches.iter().try_for_each(|launch| launch.desc.check_limits(request.info))?;
        plan.accumulate.keeps_chain = self.keeps_chain;
        if !self.names(&plan.kernel) {
            // Rows that share a planner have its launch under their own name.
            let main = plan.launches.iter_mut().filter(|launch| launch.desc.name == plan.kernel);
            main.for_each(|launch| launch.desc.name = self.name.into());
            plan.kernel = self.name.into();
        }
        Ok(plan)
    }

    /// Whether a plan of this name is one of this row's: some have two names, for different inputs.
    pub fn names(&self, kernel: &str) -> bool {
        self.name == kernel || self.also == Some(kernel)
    }
}

/// The plan to take.
/// See [`plan_node`] for the order.
fn choose_plan(request: &Request, overrides: &Overrides) -> Result<NodePlan> {
    let op = request.op.name();
    let mut rows = rows_of(op).peekable();
    if rows.peek().is_none() {
        return Err(Error::unsupported(format!("no kernel for operator `{op}`")));
    }
    if let Some(plan) = users(request, overrides)? {
        return Ok(plan);
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
    let mut first = None;
    for row in rows.filter(|row| (row.preferred)(request)) {
        match row.serve(request) {
            Ok(plan) => return Ok(plan),
            Err(e) if e.kind() == ErrorKind::Unsupported => first = Some(e),
            // Any other kind is a bug or a fault of the device, which another kernel must not hide.
            Err(e) => return Err(e),
        }
    }
    // The last row is the one that asks for least: why it does not serve is what a reader can change.
    Err(first.unwrap_or_else(|| Error::unsupported(format!("no kernel for operator `{op}` on this device"))))
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

/// The plan of a kernel with a setting, named so; `None` if it does not serve the node, or if others do all its work.
fn with_setting(
    row: &KernelRow,
    kernel: &str,
    setting: Setting,
    request: &Request,
) -> Result<Option<NodePlan>> {
    // The planner sees the setting; the names of plan and launches are changed afterwards, so that reports tell them
    // apart.
    let request = Request { setting, ..*request };
    let mut plan = match row.serve(&request) {
        Ok(plan) if plan.kernel == kernel => plan,
        Ok(_) => return Ok(None),
        Err(e) if e.kind() == ErrorKind::Unsupported => return Ok(None),
        Err(e) => return Err(e),
    };
    let mut named = 0;
    for launch in plan.launches.iter_mut().filter(|launch| launch.desc.name == kernel) {
        launch.desc.name = setting.name(kernel);
        named += 1;
    }
    plan.kernel = setting.name(kernel);
    Ok((named > 0).then_some(plan))
}

/// Puts a user's kernel in, checks the limits again, because its workgroups may be larger, and computes the hash.
fn finish_plan(mut plan: NodePlan, request: &Request, overrides: &Overrides) -> Result<NodePlan> {
    overrides.apply(served_name(request.op.name()), &mut plan)?;
    plan.launches.iter().try_for_each(|launch| launch.desc.check_limits(request.info))?;
    plan.hash = NodePlan::hash_of(&plan.launches, &plan.constants)?;
    Ok(plan)
}
