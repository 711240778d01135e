//! Devices: each is opened and adds two vectors.
//!
//! A device that is listed may still fail to compile or to compute. So every one runs a kernel, and its
//! result is compared.

use super::part::{PartKind, PartState, PlatformPart};
use crate::platform;
use crate::runtime::{CompileOptions, Device, DeviceTensor, Module, compile};
use tapml_device::DeviceInfo;
use tapml_graph::{DType, Error, Result, Tensor as Host, TensorType};

/// Every device of a platform, and the library that compiles its kernels.
pub(super) fn examine(word: &str) -> Vec<PlatformPart> {
    if !has_backend(word) {
        let reason = format!("this build has no backend for `{word}`");
        let missing = PlatformPart::new(word, PartKind::Device, PartState::Missing);
        return vec![missing.with_reason(&reason, Some("build TapML with the feature of this name"))];
    }
    let mut parts = match platform::devices(word) {
        Ok(devices) => devices.iter().enumerate().map(|(i, info)| examine_device(word, i, info)).collect(),
        Err(error) => vec![PlatformPart::new(word, PartKind::Device, PartState::Missing).with_error(&error)],
    };
    match platform::compiler(word) {
        None => {}
        Some(Ok(version)) => {
            parts.push(PlatformPart::new(word, PartKind::Compiler, PartState::Installed).with_name(&version));
        }
        Some(Err(error)) => {
            parts.push(PlatformPart::new(word, PartKind::Compiler, PartState::Missing).with_error(&error))
        }
    }
    parts
}

/// One device, by its number behind the word.
fn examine_device(word: &str, index: usize, info: &DeviceInfo) -> PlatformPart {
    let target = if index == 0 { word.to_string() } else { format!("{word}:{index}") };
    let part = PlatformPart::new(&target, PartKind::Device, PartState::Ready)
        .with_name(&info.name)
        .with_version(&info.driver);
    match add(&target) {
        Ok(()) => part,
        // It is there: that it cannot be used is a fault, whatever kind of error says so.
        Err(error) => {
            PlatformPart { state: PartState::Broken, ..part }.with_reason(&error.to_string(), error.hint())
        }
    }
}

/// Compiles and runs a sum of two vectors on a device. Fails if it is wrong.
///
/// Small whole numbers: sums in f32 are exact, and any difference is a fault.
fn add(target: &str) -> Result<()> {
    const LEN: usize = 1000;
    let ty = TensorType::new(DType::F32, [LEN]);
    let device = Device::open(target)?;
    let module = Module::op("add", serde_json::json!({}), &[ty.clone(), ty])?;
    let library = compile(&[module], &device, &CompileOptions::default())?.upload(&device)?;
    let values: Vec<f32> = (0..LEN).map(|i| i as f32).collect();
    let vector = DeviceTensor::new(&device, &Host::from_f32(vec![LEN], values.clone())?)?;
    let sums = library.function("add")?.call_new(&[&vector, &vector])?;
    let sums = sums.first().ok_or_else(|| Error::bug("a sum without a result"))?.read()?.to_f64();
    if sums.len() == LEN && values.iter().zip(&sums).all(|(&v, &sum)| f64::from(2.0 * v) == sum) {
        return Ok(());
    }
    Err(Error::invalid("the device adds two vectors wrongly")
        .with_hint(format!("`tapml device check {target} --ops` says what else is wrong; update its driver")))
}

/// The words of the devices that this build has.
fn has_backend(word: &str) -> bool {
    platform::device_words().any(|known| known == word)
}
