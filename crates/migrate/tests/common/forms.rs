//! The forms that a checkpoint is migrated in, and devices that take different rows of the kernel list.

use std::path::Path;
use tapml_device::null::NullDevice;
use tapml_device::{Features, Limits};
use tapml_graph::{DType, Model, Result, fuse};
use tapml_import::quantize::quantize;
use tapml_import::{Checkpoint, ImportOptions, LogitRows};
use tapml_kernels::any_device;

/// Dtype of activations, and of weights where they are packed.
pub const FORMS: [(DType, Option<&str>); 6] = [
    (DType::F32, None),
    (DType::F16, None),
    (DType::F16, Some("q4")),
    (DType::F16, Some("q8")),
    (DType::F16, Some("fp8")),
    (DType::F16, Some("mxfp4")),
];

/// Changes what a device offers.
type Change = fn(&mut Features);

/// Devices that take different rows of the list: any, one through WebGPU, one through Vulkan, one with OpenCL, and chips of
/// three generations with CUDA.
pub fn devices() -> Vec<(&'static str, NullDevice)> {
    let any = any_device();
    let features = |change: Change| {
        let mut features = any.features.clone();
        change(&mut features);
        features
    };
    let large = Limits {
        max_workgroup_memory: 227 << 10,
        max_invocations: 1024,
        max_storage_buffers: 64,
        max_workgroup_size: [1024, 1024, 64],
        ..any.limits.clone()
    };
    let vulkan: Change = |f| {
        (f.subgroups, f.matrices, f.device_barriers) = (Some((32, 32)), true, true);
    };
    let all: [(&str, &Limits, Change); 7] = [
        ("any", &any.limits, |_| {}),
        ("webgpu", &any.limits, |f| f.subgroups = Some((32, 32))),
        ("vulkan", &large, vulkan),
        ("opencl", &large, |f| f.subgroups = Some((16, 64))),
        ("cuda 8.0", &large, |f| f.cuda = Some(80)),
        ("cuda 9.0", &large, |f| f.cuda = Some(90)),
        ("cuda 10.0", &large, |f| f.cuda = Some(100)),
    ];
    all.map(|(name, limits, change)| (name, NullDevice::new(limits.clone(), features(change)))).into()
}

/// A checkpoint in one of the forms, its operators fused as they are by default, as it is checked.
pub fn open(dir: &Path, form: (DType, Option<&str>)) -> Result<Model> {
    open_with(dir, form, LogitRows::All)
}

/// The same with logits of these rows: of all as it is checked, of the last one as it generates.
pub fn open_with(
    dir: &Path,
    (activation, packed): (DType, Option<&str>),
    logits: LogitRows,
) -> Result<Model> {
    let options = ImportOptions { activation, logits, ..ImportOptions::default() };
    let checkpoint = Checkpoint::open_with(dir, &options)?;
    let model = match packed {
        Some(scheme) => quantize(checkpoint.model(), &scheme.parse()?)?.0,
        None => checkpoint.model().clone(),
    };
    model.with_graph(fuse(model.graph())?)
}
