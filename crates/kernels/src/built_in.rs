//! The built-in kernels by name, each as a sample of its operator launches it.
//!
//! `tapml kernel` lists and prints them, a user's kernel is compared with them, and tests run all of them. Kernels
//! are planned at the sample cases of their operators, so that every description here is one that a device could be
//! given.

use crate::kernel::settings::{self, Setting};
use crate::kernel::source::is_prelude;
use crate::kernel::{KERNELS, KernelRow, Needs, attention, paged_attention, product};
use crate::plan::{Launch, NodePlan, Phase};
use crate::serve::{plan_by, rows_of};
use std::collections::HashSet;
use std::sync::OnceLock;
use tapml_device::{AdapterKind, DeviceInfo, Features, KernelDesc, Language, Limits, Source};
use tapml_graph::op::Sample;
use tapml_graph::{DType, Error, Result, TensorType, known_names};

/// The kernel that every operator has.
/// A name that is an operator alone means this variant of it.
const PORTABLE: &str = "portable";

/// A built-in kernel, specialised for a sample of its operator. Bindings and names of constants depend on the sample only
/// where the text is put together for it, as that of products of one row is.
#[derive(Clone, Debug)]
pub struct BuiltIn {
    /// The operator.
    pub op: &'static str,
    /// The row of the kernel list, such as `add/row`.
    pub kernel: String,
    /// The case.
    pub sample: Sample,
    /// Types of the sample's outputs.
    pub outputs: Vec<TensorType>,
    /// How the sample runs: the kernel's launch, and those beside it.
    pub plan: NodePlan,
}

/// A device with the limits that WebGPU promises everywhere, and f16.
///
/// User kernels are compared with built-in ones as this device plans them, so that the outcome does not depend on the
/// machine.
pub fn any_device() -> DeviceInfo {
    DeviceInfo {
        platform: "any".into(),
        name: "any device".into(),
        driver: String::new(),
        kind: AdapterKind::Other,
        limits: Limits::WEBGPU,
        features: Features { f16: true, ..Features::default() },
    }
}

/// Bytes of shared memory, and invocations of a block, of chips that take CUDA kernels.
/// The numbers are those of compute capability 9.0: 227 KiB for one block, and 1024 threads.
const CUDA_MEMORY: u32 = 227 << 10;
/// Invocations of a block at most.
const CUDA_INVOCATIONS: u32 = 1024;

impl Needs {
    /// A device like this one that has what is needed.
    ///
    /// Limits are raised too: kernels with such needs take more buffers and workgroup memory than WebGPU promises. A
    /// device that meets the needs is returned as it is, with its own limits.
    pub fn met_by(&self, info: &DeviceInfo) -> DeviceInfo {
        let mut info = info.clone();
        if self.missing(&info).is_none() {
            return info;
        }
        let (features, limits) = (&mut info.features, &mut info.limits);
        if self.subgroups {
            (features.subgroups, features.device_barriers) = (Some((32, 32)), true);
            limits.max_storage_buffers = limits.max_storage_buffers.max(16);
            limits.max_workgroup_memory = limits.max_workgroup_memory.max(48 << 10);
        }
        features.matrices |= self.cooperative_matrices;
        // At most one of the two is set, and `None` is the least.
        if let Some(chip) = self.cuda.max(self.cuda_exactly) {
            features.cuda = Some(chip);
            limits.max_workgroup_memory = CUDA_MEMORY;
            limits.max_invocations = CUDA_INVOCATIONS;
            limits.max_workgroup_size = [CUDA_INVOCATIONS, CUDA_INVOCATIONS, 64];
            limits.max_storage_buffers = 64;
        }
        info
    }
}

/// Whether the source is that of a built-in kernel, whatever its constants. Such kernels, as planners specialise them, leave
/// no array, end, and divide by no zero: the tests run them all on the emulator with all checks.
pub fn is_built_in(desc: &KernelDesc) -> bool {
    // Planning every sample takes a while; the set does not change while the process runs.
    static TEXTS: OnceLock<HashSet<String>> = OnceLock::new();
    let texts = TEXTS.get_or_init(|| {
        let samples = KERNELS.iter().flat_map(|row| BuiltIn::of_row(row, &any_device()).0);
        let of_samples = samples.flat_map(|one| one.plan.launches).map(|launch| launch.desc.source.text);
        // Texts that are put together have more shapes than samples show: each planner lists all of its own.
        let rows = product::row::texts().chain(attention::row::texts());
        let matrices = product::matrix::texts().chain(attention::matrix::texts());
        of_samples.chain(rows).chain(matrices).chain(paged_attention::teams::texts()).collect()
    });
    let Source { language, prelude, text, .. } = &desc.source;
    // Constants are not compared: planners set them, and the tests cover them.
    *language == Language::Wgsl && texts.contains(text) && is_prelude(prelude)
}

impl BuiltIn {
    /// The kernel of this name: a row of the kernel list such as `add/row`, with a setting behind it or without, or an
    /// operator, whose portable kernel that is. If there is one for the dtype, which is f32 or f16, as a sample with
    /// activations of it launches it. A device that does not have what the kernel needs is taken to have it.
    ///
    /// Fails with [`tapml_graph::ErrorKind::InvalidInput`] on an unknown name, and as [`crate::plan_node`] if the device's
    /// limits do not suffice.
    pub fn find(name: &str, dtype: DType, info: &DeviceInfo) -> Result<BuiltIn> {
        let (kernel, setting) = Setting::parse(name);
        let op = kernel.split_once('/').map_or(kernel, |(op, _)| op);
        let kernel = if kernel.contains('/') { kernel.to_string() } else { format!("{op}/{PORTABLE}") };
        let row = rows_of(op).find(|row| row.names(&kernel)).filter(|_| setting.is_of(name));
        let row = row.ok_or_else(|| unknown(op, name))?;
        let (served, refused) = BuiltIn::of_row_with(row, &kernel, setting, info);
        // `false` is the least: a sample with the wanted activations is taken if there is one, else the first of all.
        let fits = |b: &BuiltIn| b.main().is_some_and(|main| main.desc.needs_f16 == (dtype == DType::F16));
        let found = served.into_iter().min_by_key(|b| !fits(b));
        found.ok_or_else(|| {
            refused.unwrap_or_else(|| Error::bug(format!("no sample of `{op}` runs by `{kernel}`")))
        })
    }

    /// The kernel of this name, at every sample that it serves; first the one that [`BuiltIn::find`] gives for f32. Fails
    /// as that.
    ///
    /// A user's text is tried against them in this order, because a text that is put together differs from sample to
    /// sample.
    pub(crate) fn cases(name: &str, info: &DeviceInfo) -> Result<Vec<BuiltIn>> {
        let first = BuiltIn::find(name, DType::F32, info)?;
        let (kernel, setting) = Setting::parse(&first.kernel);
        let rows = rows_of(first.op).filter(|row| row.names(kernel));
        let others: Vec<BuiltIn> =
            rows.flat_map(|row| BuiltIn::of_row_with(row, kernel, setting, info).0).collect();
        Ok(std::iter::once(first).chain(others).collect())
    }

    /// Every built-in kernel once, with its default setting and f32 activations where it has them, in the order of the list.
    pub fn all(info: &DeviceInfo) -> Result<Vec<BuiltIn>> {
        let names = KERNELS.iter().flat_map(|row| std::iter::once(row.name).chain(row.also));
        names.map(|name| BuiltIn::find(name, DType::F32, info)).collect()
    }

    /// The samples that a row serves under any of its names, and why another is not.
    fn of_row(row: &'static KernelRow, info: &DeviceInfo) -> (Vec<BuiltIn>, Option<Error>) {
        let names = std::iter::once(row.name).chain(row.also);
        let (mut all, mut refused) = (Vec::new(), None);
        for name in names {
            let (served, error) = BuiltIn::of_row_with(row, name, Setting::default(), info);
            all.extend(served);
            refused = refused.or(error);
        }
        (all, refused)
    }

    /// The samples that a row serves under one name and with a setting, and why the first other one is not.
    fn of_row_with(
        row: &'static KernelRow,
        kernel: &str,
        setting: Setting,
        info: &DeviceInfo,
    ) -> (Vec<BuiltIn>, Option<Error>) {
        let info = row.needs.met_by(info);
        let (mut served, mut refused) = (Vec::new(), None);
        for sample in row.samples() {
            let (inputs, phase) = (sample.types(), Phase::of_run(&sample.symbols));
            let planned = plan_by(row, kernel, (&sample.op, &inputs), phase, &info, setting);
            match planned.and_then(|plan| Ok((plan, sample.op.infer(&inputs)?))) {
                Ok((plan, outputs)) => {
                    let kernel = plan.kernel.clone();
                    served.push(BuiltIn { op: row.op(), kernel, sample, outputs, plan });
                }
                Err(error) => refused = refused.or(Some(error)),
            }
        }
        (served, refused)
    }

    /// A device like this one on which the kernel can run.
    pub fn device(&self, info: &DeviceInfo) -> DeviceInfo {
        self.row().map_or_else(|| info.clone(), |row| row.needs.met_by(info))
    }

    /// The row of the kernel list.
    pub fn row(&self) -> Option<&'static KernelRow> {
        let plain = Setting::parse(&self.kernel).0;
        rows_of(self.op).find(|row| row.names(plain))
    }

    /// The kernel's launch; of several parts of a weight the first.
    /// `None` if other launches do all the work, which is a bug of the planner.
    pub fn main(&self) -> Option<&Launch> {
        self.plan.launches.iter().find(|launch| launch.desc.name == self.kernel)
    }

    /// The kernel.
    ///
    /// # Errors
    /// A bug error if the plan does not launch the kernel itself.
    pub fn desc(&self) -> Result<&KernelDesc> {
        let main = self.main().map(|launch| &launch.desc);
        main.ok_or_else(|| Error::bug(format!("the plan of `{}` does not launch it", self.kernel)))
    }

    /// What `--kernel` calls it: the operator alone if it is the portable kernel.
    pub fn choice(&self) -> &str {
        if self.kernel.ends_with(PORTABLE) { self.op } else { &self.kernel }
    }
}

/// The error of a name that no row has, or of a setting that its row does not have.
/// The hint lists what would have been accepted.
fn unknown(op: &str, name: &str) -> Error {
    let (kernel, setting) = Setting::parse(name);
    let settings: Vec<String> =
        settings::rows_of(kernel).map(|row| format!("{kernel}@{}", row.setting)).collect();
    if !setting.is_of(name) && rows_of(op).any(|row| row.names(kernel)) {
        let known = if settings.is_empty() {
            format!("it has its defaults alone, `{kernel}`")
        } else {
            format!("known: {kernel}, {}", settings.join(", "))
        };
        return Error::invalid(format!("kernel `{kernel}` has no setting `{name}`")).with_hint(known);
    }
    let mut known: Vec<&str> =
        rows_of(op).flat_map(|row| std::iter::once(row.name).chain(row.also)).collect();
    if !known.is_empty() {
        let text = if name == op {
            format!("operator `{op}` has no portable kernel: name one of its kernels")
        } else {
            format!("operator `{op}` has no kernel `{name}`")
        };
        return Error::invalid(text).with_hint(known_names(name, known));
    }
    known = KERNELS.iter().map(KernelRow::op).collect();
    // The rows of an operator are neighbours in the list, so that this removes all repetitions.
    known.dedup();
    Error::invalid(format!("unknown operator `{op}`")).with_hint(known_names(op, known))
}
