//! What the rows of the kernel list serve: the plan of a node by one of them, with a setting or without, and by the first that
//! is preferred. Users' kernels and measurements are not known here.

use crate::kernel::settings::Setting;
use crate::kernel::{KERNELS, KernelRow, Request};
use crate::plan::{Launch, NodePlan, Phase};
use tapml_device::DeviceInfo;
use tapml_graph::{Context, Error, ErrorKind, Op, Result, TensorType};

/// What planners are asked for of a node, whose outputs have these types, with the default setting.
pub(crate) fn whole_request<'a>(
    op: &'a Op,
    inputs: &'a [TensorType],
    outputs: &'a [TensorType],
    phase: Phase,
    info: &'a DeviceInfo,
) -> Request<'a> {
    Request { op, inputs, outputs, info, phase, setting: Setting::default(), plan_step }
}

/// Plans a step of an operator's definition: by the first row that is preferred for it and serves it.
fn plan_step(op: &Op, inputs: &[TensorType], phase: Phase, info: &DeviceInfo) -> Result<NodePlan> {
    let outputs = op.infer(inputs)?;
    let request = whole_request(op, inputs, &outputs, phase, info);
    let planned = plan_preferred(&request).and_then(|plan| finish_built_in(plan, &request));
    planned.map_err(|e| e.with_detail("op", op.name())).context(|| op.name().to_string())
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
    let request = whole_request(op, inputs, &outputs, phase, info);
    // Without a setting first: its error says why the row does not serve the node, which `with_setting` drops.
    row.serve(&request)?;
    let plan = with_setting(row, kernel, setting, &request)?;
    let plan = plan.filter(|plan| plan.kernel == setting.name(kernel));
    let plan = plan.ok_or_else(|| Error::unsupported(format!("`{kernel}` does not serve such a node")))?;
    finish_built_in(plan, &request)
}

/// The name by which kernels serve an operator: that of an operator of others without its version, which is the planner's to
/// tell apart.
pub(crate) fn served_name(op: &str) -> &str {
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

/// The plan of the first row that is preferred for such a node and serves it.
///
/// # Errors
/// Of kind `Unsupported` if there is none.
pub(crate) fn plan_preferred(request: &Request) -> Result<NodePlan> {
    let op = request.op.name();
    let mut rows = rows_of(op).peekable();
    if rows.peek().is_none() {
        return Err(Error::unsupported(format!("no kernel for operator `{op}`")));
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

/// The plan of a kernel with a setting, named so; `None` if it does not serve the node, or if others do all its work.
pub(crate) fn with_setting(
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

/// Checks the limits of the device, and computes the hash.
pub(crate) fn finish_built_in(mut plan: NodePlan, request: &Request) -> Result<NodePlan> {
    plan.launches.iter().try_for_each(|launch| launch.desc.check_limits(request.info))?;
    plan.hash = plan.compute_hash()?;
    Ok(plan)
}
