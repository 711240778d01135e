//! The built-in kernels by name, each as a sample of its operator launches it.

use crate::kernel::argmax;
use crate::kernel::attention::{self, keep, split};
use crate::kernel::product::{matrix, row};
use crate::kernel::source::is_prelude;
use crate::kernel::{KERNELS, KernelRow};
use crate::plan::{Launch, NodePlan, plan_settings, plan_variants};
use std::collections::HashSet;
use std::sync::OnceLock;
use tapml_device::{AdapterKind, DeviceInfo, Features, KernelDesc, Language, Limits, Source};
use tapml_graph::op::{OPS, Sample};
use tapml_graph::{DType, Error, Op, Result, TensorType};

/// The variant that every operator has.
const PORTABLE: &str = "portable";

/// What gives the ways of running a node.
type Ways = fn(&Op, &[TensorType], &DeviceInfo) -> Result<Vec<NodePlan>>;

/// A built-in kernel, specialised for a sample of its operator. Bindings and names of constants do not depend on the
/// sample.
#[derive(Clone, Debug)]
pub struct BuiltIn {
    /// The operator.
    pub op: &'static str,
    /// Operator and variant, such as `add/row`.
    pub kernel: String,
    /// The case.
    pub sample: Sample,
    /// Types of the sample's outputs.
    pub outputs: Vec<TensorType>,
    /// How the sample runs: the kernel's launch, and those beside it.
    pub plan: NodePlan,
}

/// A device with the limits that WebGPU promises everywhere, and f16.
pub fn any_device() -> DeviceInfo {
    DeviceInfo {
        platform: "any".into(),
        name: "any device".into(),
        driver: String::new(),
        kind: AdapterKind::Other,
        limits: Limits::WEBGPU,
        features: Features { f16: true, subgroups: None, cuda: None, matrices: false },
    }
}

/// Whether the source is that of a built-in kernel, whatever its constants. Such kernels, as planners specialise them, leave
/// no array, end, and divide by no zero: the tests run them all on the emulator with all checks.
pub fn is_built_in(desc: &KernelDesc) -> bool {
    static TEXTS: OnceLock<HashSet<String>> = OnceLock::new();
    let texts = TEXTS.get_or_init(|| {
        let any = any_device();
        let features = Features { subgroups: Some((32, 32)), ..any.features };
        let able = DeviceInfo { features, ..any };
        let samples =
            KERNELS.iter().filter_map(|row| BuiltIn::samples(row, &able, plan_variants).ok()).flatten();
        let of_samples = samples.flat_map(|one| one.plan.launches).map(|launch| launch.desc.source.text);
        let rows = row::texts().into_iter().chain(attention::row::texts());
        let matrices = matrix::texts().chain(attention::matrix::texts());
        let others = argmax::TEXTS.into_iter().chain([split::JOINED_TEXT, keep::TEXT]).map(String::from);
        of_samples.chain(rows).chain(matrices).chain(others).collect()
    });
    let Source { language, prelude, text, .. } = &desc.source;
    *language == Language::Wgsl && texts.contains(text) && is_prelude(prelude)
}

impl BuiltIn {
    /// The kernel of this name: an operator, whose portable kernel that is, or operator and variant, such as `add/row`, with
    /// a setting behind it or without. If there is one for the dtype, which is f32 or f16, as a sample with activations of it launches it.
    ///
    /// Fails with [`tapml_graph::ErrorKind::InvalidInput`] on an unknown name, and as [`crate::plan_node`] if the device
    /// cannot serve the operator.
    pub fn find(name: &str, dtype: DType, info: &DeviceInfo) -> Result<BuiltIn> {
        let (op, variant) = name.split_once('/').unwrap_or((name, PORTABLE));
        let (all, kernel) = (BuiltIn::samples(row(op)?, info, plan_settings)?, format!("{op}/{variant}"));
        let mut known: Vec<String> = Vec::new();
        for one in &all {
            if !known.contains(&one.kernel) {
                known.push(one.kernel.clone());
            }
        }
        let fits = |b: &BuiltIn| b.main().is_some_and(|main| main.desc.needs_f16 == (dtype == DType::F16));
        let own = all.into_iter().filter(|b| b.kernel == kernel);
        own.min_by_key(|b| !fits(b)).ok_or_else(|| {
            Error::invalid(format!("operator `{op}` has no kernel `{name}`"))
                .with_hint(format!("known: {}", known.join(", ")))
        })
    }

    /// Every built-in kernel once, with its default setting and f32 activations, in the order of the operators.
    pub fn all(info: &DeviceInfo) -> Result<Vec<BuiltIn>> {
        let mut all: Vec<BuiltIn> = Vec::new();
        for row in KERNELS {
            for one in BuiltIn::samples(row, info, plan_variants)? {
                if all.iter().all(|known| known.kernel != one.kernel) {
                    all.push(BuiltIn::find(&one.kernel, DType::F32, info)?);
                }
            }
        }
        Ok(all)
    }

    /// The samples of an operator that the device serves; fails if there is none.
    fn samples(row: &'static KernelRow, info: &DeviceInfo, ways: Ways) -> Result<Vec<BuiltIn>> {
        let samples = OPS.iter().find(|op| op.name == row.op).map(|op| (op.samples)()).unwrap_or_default();
        let (mut served, mut refused) = (Vec::new(), None);
        for sample in samples {
            match BuiltIn::of(row, sample, info, ways) {
                Ok(ways) => served.extend(ways),
                Err(error) => refused = refused.or(Some(error)),
            }
        }
        match (served.is_empty(), refused) {
            (true, Some(error)) => Err(error),
            (true, None) => Err(Error::bug(format!("operator `{}` has no sample", row.op))),
            (false, _) => Ok(served),
        }
    }

    /// Every way of running a sample.
    fn of(row: &'static KernelRow, sample: Sample, info: &DeviceInfo, ways: Ways) -> Result<Vec<BuiltIn>> {
        let inputs = sample.types();
        let outputs = sample.op.infer(&inputs)?;
        let one = |plan: NodePlan| {
            let (sample, outputs) = (sample.clone(), outputs.clone());
            BuiltIn { op: row.op, kernel: plan.kernel.clone(), sample, outputs, plan }
        };
        Ok(ways(&sample.op, &inputs, info)?.into_iter().map(one).collect())
    }

    /// The kernel's launch; of several parts of a weight the first.
    pub fn main(&self) -> Option<&Launch> {
        self.plan.launches.iter().find(|launch| launch.desc.name == self.kernel)
    }

    /// The kernel.
    pub fn desc(&self) -> Result<&KernelDesc> {
        let main = self.main().map(|launch| &launch.desc);
        main.ok_or_else(|| Error::bug(format!("the plan of `{}` does not launch it", self.kernel)))
    }

    /// What `--kernel` calls it: the operator alone if it is the portable kernel.
    pub fn choice(&self) -> &str {
        if self.kernel.ends_with(PORTABLE) { self.op } else { &self.kernel }
    }
}

/// The row of an operator in the kernel list.
fn row(op: &str) -> Result<&'static KernelRow> {
    KERNELS.iter().find(|row| row.op == op).ok_or_else(|| {
        let known: Vec<&str> = KERNELS.iter().map(|row| row.op).collect();
        Error::invalid(format!("unknown operator `{op}`")).with_hint(format!("known: {}", known.join(", ")))
    })
}
