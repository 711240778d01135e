//! Clusters of blocks for launches of few rows.
//!
//! Source: "Thread Block Clusters" in the CUDA Programming Guide, and `cuLaunchKernelEx` of the driver's reference.

use tapml_device::KernelDesc;
use tapml_graph::{Error, Result};

/// Blocks of a cluster that every chip with clusters takes.
const MOST_BLOCKS: f64 = 8.0;

/// A rule that a kernel in CUDA C++ asks for by constants of its description: a grid of at most `CLUSTER_ROWS` blocks along y has
/// `CLUSTER` blocks in the place of each one along x, and these are a cluster. A larger grid stays as it is. So a kernel whose blocks
/// have a row each has enough blocks for few rows, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClusterRule {
    /// Blocks of a cluster.
    blocks: u32,
    /// Blocks along y at most.
    rows: u32,
}

impl ClusterRule {
    /// The rule of a kernel, if it has one.
    ///
    /// # Errors
    /// If the constants are no numbers of blocks.
    pub(crate) fn from_desc(desc: &KernelDesc) -> Result<Option<ClusterRule>> {
        let constant =
            |name: &str| desc.constants.iter().find(|(own, _)| own == name).map(|(_, value)| *value);
        let Some(rows) = constant("CLUSTER_ROWS") else { return Ok(None) };
        let blocks = constant("CLUSTER").unwrap_or(0.0);
        let whole = |value: f64, most: f64| (1.0..=most).contains(&value) && value.fract() == 0.0;
        if !whole(blocks, MOST_BLOCKS) || !whole(rows, f64::from(u16::MAX)) {
            let text = format!(
                "kernel `{}`: CLUSTER must be from 1 to {MOST_BLOCKS} and CLUSTER_ROWS from 1 to {}, found {blocks} and {rows}",
                desc.name,
                u16::MAX
            );
            return Err(Error::invalid(text).with_detail("kernel", &desc.name));
        }
        let rule = ClusterRule { blocks: blocks as u32, rows: rows as u32 };
        Ok(Some(rule).filter(|rule| rule.blocks > 1))
    }

    /// The blocks of a cluster in this grid, and the grid with them; `None` if it has none.
    pub(crate) fn cluster_grid(&self, groups: [u32; 3]) -> Option<([u32; 3], u32)> {
        let [x, y, z] = groups;
        let x = x.checked_mul(self.blocks).filter(|_| y <= self.rows)?;
        Some(([x, y, z], self.blocks))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tapml_device::{Language, Source};

    fn desc(constants: &[(&str, f64)]) -> KernelDesc {
        let (file, prelude, text) = ("k.cu".into(), String::new(), String::new());
        KernelDesc {
            name: "k".into(),
            source: Source { language: Language::Cuda, file, prelude, text },
            entry: "k".into(),
            constants: constants.iter().map(|(name, value)| (name.to_string(), *value)).collect(),
            bindings: Vec::new(),
            workgroup: [128, 1, 1],
            workgroup_memory: 0,
            needs_f16: false,
            needs_subgroups: false,
            dependent_launch: true,
        }
    }

    #[test]
    fn grids_of_few_rows_have_clusters() {
        let rule =
            ClusterRule::from_desc(&desc(&[("CLUSTER", 8.0), ("CLUSTER_ROWS", 4.0)])).unwrap().unwrap();
        assert_eq!(rule.cluster_grid([3, 4, 1]), Some(([24, 4, 1], 8)));
        assert_eq!(rule.cluster_grid([3, 5, 1]), None);
        assert_eq!(rule.cluster_grid([u32::MAX, 1, 1]), None, "a grid has 32 bits");
        assert_eq!(ClusterRule::from_desc(&desc(&[("CLUSTER", 8.0)])).unwrap(), None);
        assert_eq!(ClusterRule::from_desc(&desc(&[("CLUSTER", 1.0), ("CLUSTER_ROWS", 4.0)])).unwrap(), None);
    }

    #[test]
    fn what_is_no_number_of_blocks_is_refused() {
        for (blocks, rows) in [(9.0, 4.0), (0.0, 4.0), (2.5, 4.0), (8.0, 0.0), (8.0, f64::NAN), (8.0, 1e9)] {
            let error = ClusterRule::from_desc(&desc(&[("CLUSTER", blocks), ("CLUSTER_ROWS", rows)]));
            assert!(error.unwrap_err().to_string().contains("CLUSTER_ROWS"), "{blocks} {rows}");
        }
        assert!(ClusterRule::from_desc(&desc(&[("CLUSTER_ROWS", 4.0)])).is_err());
    }
}
