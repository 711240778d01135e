//! Options of a device: the query string after `?` in a platform word, such as `checks=off`.
//!
//! They are part of a platform's identity: results with checks do not stand for results without.

use tapml_cfamily::device::switches;
use tapml_graph::Result;

/// What a user can choose when a device is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CudaOptions {
    /// Print WGSL kernels whose indices are kept inside their arrays.
    pub(crate) checks: bool,
    /// Offer `f16`.
    pub(crate) f16: bool,
    /// Run lists that come again as CUDA graphs.
    pub(crate) graphs: bool,
    /// Wait for each command, so that an error names the one that made it.
    pub(crate) sync: bool,
    /// Take kernels in CUDA C++: the tuned ones beside the portable ones.
    pub(crate) tuned: bool,
    /// Let other devices use this one's memory, where the ranks of a model meet.
    pub(crate) peers: bool,
}

impl Default for CudaOptions {
    fn default() -> CudaOptions {
        CudaOptions { checks: true, f16: true, graphs: true, sync: false, tuned: true, peers: true }
    }
}

impl CudaOptions {
    /// Reads `name=value` pairs joined by `&`. The empty string means all defaults.
    pub(crate) fn parse(text: &str) -> Result<CudaOptions> {
        let mut options = CudaOptions::default();
        let known = &mut [
            ("checks", &mut options.checks),
            ("f16", &mut options.f16),
            ("graphs", &mut options.graphs),
            ("sync", &mut options.sync),
            ("tuned", &mut options.tuned),
            ("peers", &mut options.peers),
        ];
        switches(text, known)?;
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_knows_and_refuses_the_rest() {
        assert_eq!(CudaOptions::parse("").unwrap(), CudaOptions::default());
        let all = CudaOptions::parse("checks=off&f16=off&graphs=off&sync=on&tuned=off&peers=off").unwrap();
        let (checks, f16, graphs, tuned) = (false, false, false, false);
        assert_eq!(all, CudaOptions { checks, f16, graphs, sync: true, tuned, peers: false });
        for bad in ["colour=on", "checks", "checks=maybe", "="] {
            assert!(
                CudaOptions::parse(bad).unwrap_err().hint().unwrap().starts_with("known options"),
                "{bad}"
            );
        }
    }
}
