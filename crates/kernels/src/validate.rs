//! Checks specialised kernels where no device is at hand: what a front end of a device would refuse is refused here.
//!
//! naga is the front end of wgpu. What it accepts here is what a device with wgpu accepts; other front ends may
//! differ.

use crate::wgsl::{WgslDeclarations, describe, parse};
use naga::ShaderStage;
use naga::back::{PipelineConstants, pipeline_constants::process_overrides};
use naga::valid::ModuleInfo;
use std::collections::HashMap;
use tapml_device::{KernelDesc, Language, Source};
use tapml_graph::{Error, ErrorKind, Result};

/// Checks kernels; remembers parsed sources, because many kernels are specialisations of one.
#[derive(Default)]
pub struct Validator {
    /// Modules by source and by whether f16 is enabled, without values of constants.
    parsed: HashMap<(Source, bool), (naga::Module, ModuleInfo)>,
}

impl Validator {
    /// Nothing parsed yet.
    pub fn new() -> Validator {
        Validator::default()
    }

    /// Puts the constants in and validates the result, which must be what the description says: entry point,
    /// workgroup, bindings and workgroup memory. The limits of a device are not checked here; see
    /// [`KernelDesc::check_limits`], and neither is CUDA C++, which only its own compiler can judge.
    ///
    /// Fails with [`ErrorKind::Compile`] if the source is not valid, for itself or with these constants, and with
    /// [`ErrorKind::Bug`] if the description is wrong.
    pub fn check(&mut self, desc: &KernelDesc) -> Result<()> {
        if desc.source.language != Language::Wgsl {
            return Ok(());
        }
        let key = (desc.source.clone(), desc.needs_f16);
        if !self.parsed.contains_key(&key) {
            self.parsed.insert(key.clone(), parse(&desc.source, desc.needs_f16)?);
        }
        let (module, info) = &self.parsed[&key];
        // naga ignores values of unknown constants, but browsers refuse them.
        let WgslDeclarations { overrides: known, bindings, .. } = describe(module, info);
        let mut constants = PipelineConstants::default();
        for (name, value) in &desc.constants {
            if !known.iter().any(|(own, _)| own == name) {
                return Err(wrong(desc, &format!("the text has no `override` constant `{name}`")));
            }
            constants.insert(name.clone(), *value);
        }
        let entry = Some((ShaderStage::Compute, desc.entry.as_str()));
        // Sizes of workgroups and of memory are known only with all constants put in.
        let (module, info) = process_overrides(module, info, entry, &constants).map_err(|e| {
            let text = format!("{} with the constants {:?}: {e}", desc.source.file, desc.constants);
            Error::new(ErrorKind::Compile, text).with_detail("kernel", &desc.name)
        })?;
        // Bindings are those of the text: with the constants put in, naga drops what the entry point does not use.
        compare(desc, &WgslDeclarations { bindings, ..describe(&module, &info) })
    }
}

/// Fails with a bug error unless the declarations are as the description says.
fn compare(desc: &KernelDesc, found: &WgslDeclarations) -> Result<()> {
    if !found.entries.contains(&(desc.entry.clone(), desc.workgroup)) {
        let (entry, size) = (&desc.entry, desc.workgroup);
        return Err(wrong(desc, &format!("the text has no entry point `{entry}` of workgroups {size:?}")));
    }
    let kinds: Vec<_> = found.bindings.iter().map(|b| b.kind).collect();
    let expected: Vec<_> = desc.bindings.iter().map(|&kind| Some(kind)).collect();
    if kinds != expected || found.bindings.iter().zip(0..).any(|(b, i)| b.number != i) {
        return Err(wrong(desc, &format!("the text binds {kinds:?}, described are {expected:?}")));
    }
    match found.workgroup_memory {
        Some(bytes) if bytes <= desc.workgroup_memory => Ok(()),
        bytes => {
            let described = desc.workgroup_memory;
            Err(wrong(
                desc,
                &format!("the text takes {bytes:?} bytes of workgroup memory, described are {described}"),
            ))
        }
    }
}

/// The error of a description that is not like its text: the planner's fault, not the user's.
fn wrong(desc: &KernelDesc, text: &str) -> Error {
    Error::bug(format!("kernel `{}`: {text}", desc.name)).with_detail("kernel", &desc.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tapml_device::BindingKind;

    fn desc(text: &str, constants: &[(&str, f64)]) -> KernelDesc {
        let source = Source {
            language: Language::Wgsl,
            file: "mine.wgsl".into(),
            prelude: String::new(),
            text: text.into(),
        };
        KernelDesc {
            name: "mine".into(),
            source,
            entry: "main".into(),
            constants: constants.iter().map(|&(name, value)| (name.into(), value)).collect(),
            bindings: vec![BindingKind::ReadWrite],
            workgroup: [64, 1, 1],
            workgroup_memory: 256,
            needs_f16: false,
            needs_subgroups: false,
            dependent_launch: false,
        }
    }

    const TEXT: &str = "override K: u32;
        @group(0) @binding(0) var<storage, read_write> y: array<u32>;
        var<workgroup> tile: array<u32, 64>;
        @compute @workgroup_size(64)
        fn main(@builtin(local_invocation_index) i: u32) {
            tile[i] = 7u / K;
            y[i] = tile[i] + K * 65536u;
        }";

    #[test]
    fn what_is_described_rightly_passes() {
        let mut validator = Validator::new();
        validator.check(&desc(TEXT, &[("K", 3.0)])).unwrap();
        validator.check(&desc(TEXT, &[("K", 4.0)])).unwrap();
        assert_eq!(validator.parsed.len(), 1);
    }

    #[test]
    fn a_binding_that_is_not_used_is_one_of_the_text() {
        let text = format!("{TEXT}\n@group(0) @binding(1) var<uniform> rows: vec4<u32>;");
        let bindings = vec![BindingKind::ReadWrite, BindingKind::Uniform];
        let right = KernelDesc { bindings, ..desc(&text, &[("K", 3.0)]) };
        Validator::new().check(&right).unwrap();
        assert!(Validator::new().check(&desc(&text, &[("K", 3.0)])).is_err());
    }

    #[test]
    fn constants_that_do_not_fit_or_are_missing_are_refused() {
        let mut validator = Validator::new();
        for bad in [-1.0, 5e9] {
            let error = validator.check(&desc(TEXT, &[("K", bad)])).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Compile, "{bad}: {error}");
        }
        assert_eq!(validator.check(&desc(TEXT, &[])).unwrap_err().kind(), ErrorKind::Compile);
    }

    #[test]
    fn a_wrong_description_is_a_bug() {
        let right = desc(TEXT, &[("K", 3.0)]);
        let wrong = [
            KernelDesc { constants: vec![("L".into(), 1.0)], ..right.clone() },
            KernelDesc { entry: "other".into(), ..right.clone() },
            KernelDesc { workgroup: [32, 1, 1], ..right.clone() },
            KernelDesc { bindings: vec![BindingKind::Read], ..right.clone() },
            KernelDesc { workgroup_memory: 128, ..right.clone() },
        ];
        for desc in wrong {
            assert!(Validator::new().check(&desc).is_err(), "{desc:?}");
        }
        let error = Validator::new().check(&desc("fn main( {", &[])).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Compile);
    }
}
