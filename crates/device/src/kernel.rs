//! A kernel as data: source text, specialisation constants, bindings, workgroup size.
//!
//! A description holds all that decides the compiled code on a device.

use crate::{DeviceInfo, Features};
use serde::{Deserialize, Serialize};
use tapml_graph::{Error, Result};

/// Source language of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Language {
    /// WebGPU Shading Language, without `enable` directives: each device adds what its front end wants.
    Wgsl,
    /// CUDA C++ as NVRTC compiles it, without any header. Only devices with [`Features::cuda`] take it.
    ///
    /// Each constant becomes a line `#define NAME value` in front of the source, whole numbers without a fraction. The
    /// entry point is an `extern "C" __global__` function with one pointer for each binding, in order; uniform blocks are
    /// pointers too. [`KernelDesc::workgroup_memory`] is its dynamic shared memory.
    Cuda,
}

/// Source text. What is compiled is `prelude` followed by `text`; lines in errors count within `text` alone.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Source {
    /// Language.
    pub language: Language,
    /// Name of the file the text is from, for messages.
    pub file: String,
    /// Declarations in front of the text: type aliases and shared functions. Ends with a line break if not empty.
    pub prelude: String,
    /// The kernel's own text.
    pub text: String,
}

impl Source {
    /// Prelude and text as one.
    pub fn full(&self) -> String {
        format!("{}{}", self.prelude, self.text)
    }

    /// The line within `text` (from 1) of a line of the full source; `None` if it lies in the prelude.
    pub fn line_in_text(&self, full_line: u32) -> Option<u32> {
        // A prelude ends with a line break, so its lines can be counted.
        let prelude = self.prelude.matches('\n').count() as u32;
        full_line.checked_sub(prelude).filter(|&l| l > 0)
    }

    /// Text and name of file for a compiler's log of errors at these bytes of `full`, the full source with or without directives in
    /// front. Lines count as in the text's own file, and bytes keep their places. Only where an error lies in the prelude they
    /// count from its beginning, which the name says.
    pub fn for_log(&self, full: &str, mut errors: impl Iterator<Item = usize>) -> (String, String) {
        let prelude = self.prelude.matches('\n').count();
        // The text's first line will share its line with the prelude.
        let second = full.match_indices('\n').nth(prelude).map_or(full.len(), |(at, _)| at);
        if prelude > 0 && errors.any(|at| at < second) {
            return (full.to_string(), format!("{} (behind its prelude)", self.file));
        }
        (full.replacen('\n', " ", prelude), self.file.clone())
    }
}

/// How a binding is used. Binding `i` of a kernel is `@group(0) @binding(i)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BindingKind {
    /// `var<storage, read>`.
    Read,
    /// `var<storage, read_write>`.
    ReadWrite,
    /// `var<uniform>`.
    Uniform,
}

/// Everything a device needs to compile a kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KernelDesc {
    /// Name for people: operator and variant, such as `linear/portable`.
    pub name: String,
    /// Source.
    pub source: Source,
    /// Entry point.
    pub entry: String,
    /// Values of `override` constants by name.
    pub constants: Vec<(String, f64)>,
    /// Bindings of group 0 in order.
    pub bindings: Vec<BindingKind>,
    /// Invocations of a workgroup in x, y and z.
    pub workgroup: [u32; 3],
    /// Bytes of workgroup memory that the kernel declares; in CUDA C++, of dynamic shared memory that it is launched with.
    pub workgroup_memory: u32,
    /// Whether the source needs `f16`.
    pub needs_f16: bool,
    /// Whether the source needs subgroup operations.
    pub needs_subgroups: bool,
    /// Whether the kernel may start before the one in front of it in a list has ended, where the device can do that
    /// (programmatic dependent launch). Such a kernel itself waits (`griddepcontrol.wait`) before it reads what an earlier
    /// kernel writes and before it writes anything.
    #[serde(rename = "overlaps", default)]
    pub dependent_launch: bool,
}

impl KernelDesc {
    /// Checks the kernel against a device's limits and features before anything is compiled.
    ///
    /// Fails with [`tapml_graph::ErrorKind::Unsupported`] and the details `kernel` and either `limit`, `asked` and
    /// `offered`, or `feature`; with [`tapml_graph::ErrorKind::InvalidInput`] for a workgroup without invocations.
    pub fn check_limits(&self, info: &DeviceInfo) -> Result<()> {
        if self.workgroup.contains(&0) {
            let text = format!("kernel `{}` has workgroups of {:?} invocations", self.name, self.workgroup);
            return Err(Error::invalid(text).with_detail("kernel", &self.name));
        }
        let l = &info.limits;
        // Uniform blocks have a limit of their own.
        let storage = self.bindings.iter().filter(|&&b| b != BindingKind::Uniform).count() as u64;
        let invocations = self.workgroup.iter().fold(1u64, |all, &w| all.saturating_mul(u64::from(w)));
        // All limits are looked at in one order, so that an error is the same on every backend.
        let rows = [
            // Details have these names; see `check_limits`.
            ("max_storage_buffers", storage, u64::from(l.max_storage_buffers)),
            ("max_invocations", invocations, u64::from(l.max_invocations)),
            ("max_workgroup_size.x", u64::from(self.workgroup[0]), u64::from(l.max_workgroup_size[0])),
            ("max_workgroup_size.y", u64::from(self.workgroup[1]), u64::from(l.max_workgroup_size[1])),
            ("max_workgroup_size.z", u64::from(self.workgroup[2]), u64::from(l.max_workgroup_size[2])),
            ("max_workgroup_memory", u64::from(self.workgroup_memory), u64::from(l.max_workgroup_memory)),
        ];
        for (limit, asked, offered) in rows {
            if asked > offered {
                let text =
                    format!("kernel `{}` needs {limit} = {asked}, {} offers {offered}", self.name, info.name);
                return Err(Error::unsupported(text)
                    .with_detail("kernel", &self.name)
                    .with_detail("limit", limit)
                    .with_detail("asked", asked.to_string())
                    .with_detail("offered", offered.to_string()));
            }
        }
        self.check_features(&info.features, &info.name)
    }

    /// Whether the text asks for matrix units: a line of it enables them.
    pub fn needs_matrices(&self) -> bool {
        const ENABLE: &str = "enable wgpu_cooperative_matrix;";
        let text = &self.source.text;
        // Most texts do not have it at all, which is found out faster than line by line.
        text.contains(ENABLE) && text.lines().any(|line| line.trim() == ENABLE)
    }

    /// The first feature that is lacking.
    fn check_features(&self, features: &Features, device: &str) -> Result<()> {
        let lacks = if self.source.language == Language::Cuda && features.cuda.is_none() {
            "cuda"
        } else if self.needs_f16 && !features.f16 {
            "f16"
        } else if self.needs_subgroups && features.subgroups.is_none() {
            "subgroups"
        } else if self.needs_matrices() && !features.matrices {
            "matrices"
        } else {
            return Ok(());
        };
        Err(Error::unsupported(format!("kernel `{}` needs {lacks}, which {device} does not have", self.name))
            .with_detail("kernel", &self.name)
            .with_detail("feature", lacks))
    }
}

#[cfg(test)]
mod tests;
