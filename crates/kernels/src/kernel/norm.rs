//! What the planners of normalisations share: the runs of columns that are normalised each on its own, and the lanes
//! that treat them.

use super::source::{LaunchBuilder, constant, elements, single_workgroup};
use crate::plan::Launch;
use tapml_graph::{Dim, Extent, Result, TensorType};

/// Invocations of a workgroup.
pub const LANES: u32 = 256;
/// Bytes of workgroup memory of the `norm` prelude.
pub const WORKGROUP_MEMORY: u32 = 4 * LANES;

/// Rows, or groups of the columns of rows.
pub struct Runs {
    /// Columns of one.
    len: u32,
    /// How many a row has.
    per_row: u32,
    /// How many there are.
    count: Dim,
    /// Lanes that treat one.
    team: u32,
}

impl Runs {
    /// The runs of `x`: whole rows, or every `group` columns. Rows get a workgroup each; heads are short, so several
    /// share one, with two columns or more for each lane.
    pub fn from_type(x: &TensorType, group: Option<u32>) -> Result<Runs> {
        let width = constant("the row length", &x.shape[1])?;
        let len = group.unwrap_or(width);
        let per_row = width / len.max(1);
        // A power of two, because sums of a team are joined in a tree.
        let team = group.map_or(LANES, |len| len.div_ceil(2).next_power_of_two().min(LANES));
        Ok(Runs { len, per_row, count: elements(&x.shape[0], per_row)?, team })
    }

    /// Runs that a weight has values for: 1 if all are alike, else those of a row.
    pub fn of_weight(&self, weight: Option<&TensorType>) -> u32 {
        let alike = weight.is_none_or(|ty| ty.elements() == Some(Dim::from(u64::from(self.len))));
        if alike { 1 } else { self.per_row }
    }

    /// Sets the sizes and gives the launch.
    pub fn launch(&self, launch: LaunchBuilder) -> Result<Launch> {
        let launch = launch.rows(&self.count)?.set("K", self.len).set("TEAM", self.team);
        // Teams of one workgroup treat neighbouring runs.
        let groups = Extent::ceil_div(self.count.clone(), LANES / self.team);
        Ok(launch.groups([groups, single_workgroup(), single_workgroup()]))
    }

    /// Elements that one lane adds up.
    pub fn chain(&self) -> u32 {
        self.len.div_ceil(self.team)
    }
}
