//! What the kernels of recurrences share: a state that is advanced where it lies.
//!
//! The state before is copied to the output that holds the state after, which the recurrence then reads and writes:
//! WebGPU forbids a dispatch to read and write one buffer under two bindings, and allows eight of them. If both lie in
//! one buffer, the copy is left out.

use super::source::{KernelSource, elements, plan as planned, rows_and_width};
use super::{Request, source::LaunchBuilder};
use crate::axis::Axis;
use crate::plan::{Accumulate, Arg, InPlace, Launch, NodePlan, Scratch};
use tapml_device::Grid;
use tapml_graph::{DType, Dim, Error, Extent, Result};

/// Rows of a head's state that the kernels can hold: a quarter of them in the registers of each invocation.
/// Registers hold 64 numbers of each invocation then.
const MAX_ROWS: u32 = 256;
/// Columns of a head's state that one workgroup holds; four invocations share a column.
const COLUMNS: u32 = 64;
/// The texts of a step, as the kernels of recurrences see them.
pub struct Texts {
    /// Most texts.
    pub count: u32,
    /// Slots of the states.
    pub slots: u32,
    /// What tells whose each row is, where a kernel has no buffer left for it.
    pub index: Option<Index>,
}

/// An index, and the launch that makes it.
#[derive(Clone)]
pub struct Index {
    /// Writes it.
    pub launch: Launch,
    /// Its memory, the only one of the node.
    pub scratch: Scratch,
}

impl Texts {
    /// The constants of the counts.
    pub fn set_counts(&self, launch: LaunchBuilder) -> LaunchBuilder {
        launch.set("TEXTS", self.count).set("SLOTS", self.slots)
    }
}

/// Invocations of the workgroup of a recurrence.
pub const LANES: u32 = 4 * COLUMNS;

/// The flat kernel by which `append` copies a cache too: element `i` of the output is element `i` of the input.
const COPY: KernelSource =
    KernelSource::flat("state/copy", "append/copy.wgsl", include_str!("append/copy.wgsl"));

/// The copy of the state, input `before`, to output 1.
/// States are f32, whatever the activations are.
pub fn copy(request: &Request, before: usize) -> Result<Launch> {
    let (rows, width) = rows_and_width(&request.inputs[before])?;
    let copy = COPY.launch(DType::F32, DType::F32)?.input(before).output(1);
    Ok(copy.rows(&rows)?.set("K", width).flat(elements(&rows, width)?))
}

/// A recurrence of `heads` heads, each with a state of `size` rows and columns.
///
/// The grid is one workgroup for each head, each 64 columns of its state and each text. A workgroup walks through the tokens
/// of its text in order.
pub struct Recurrence<'a> {
    /// Heads.
    pub heads: u32,
    /// Rows and columns of a head's state.
    pub size: [u32; 2],
    /// The texts, if there are several.
    pub texts: Option<&'a Texts>,
}

/// One input of a recurrence: itself, or what an index holds beside it if there are several texts.
pub fn own_or_index(texts: Option<&Texts>, index: usize) -> Arg {
    match texts {
        Some(_) => Arg::Scratch(0),
        None => Arg::Input { index, offset: 0, len: 0 },
    }
}

impl Recurrence<'_> {
    /// The plan of `kernel`, whose `launch` has every binding but the outputs. State `before` is an input.
    ///
    /// # Errors
    /// `Unsupported` if a state has more rows than the registers of a workgroup hold.
    pub fn plan(
        &self,
        request: &Request,
        kernel: &KernelSource,
        launch: LaunchBuilder,
        before: usize,
    ) -> Result<NodePlan> {
        let Recurrence { heads, size: [rows, columns], texts } = *self;
        if rows > MAX_ROWS {
            return Err(Error::unsupported(format!("a state of {rows} rows: the kernel takes {MAX_ROWS}"))
                .with_detail("limit", "state_rows")
                .with_detail("asked", rows.to_string())
                .with_detail("offered", MAX_ROWS.to_string()));
        }
        let tokens = &request.inputs[0].shape[0];
        let launch = launch.output(0).output(1).rows(tokens)?;
        let launch = launch.set("STATE", rows).set("HEAD_DIM", columns);
        let launch = texts.into_iter().fold(launch, |launch, texts| texts.set_counts(launch));
        // Behind those of the texts stand the workgroups of rows of no text.
        let layers = texts.map_or(1, |texts| texts.count.saturating_add(1));
        let groups: Grid =
            [heads, columns.div_ceil(COLUMNS), layers].map(|count| Extent::from_dim(u64::from(count)));
        // An element of the state is added to once for each token; an output adds up an invocation's rows, four by
        // four, then the four sums, then those of the four invocations.
        let sum = Dim::from(u64::from(rows.div_ceil(16)) + 2 + 2);
        let chain = sum.checked_add(tokens).ok_or_else(|| Error::unsupported("the row count overflows"))?;
        // The copy is launch 0; `in_place` names it, so that the compiler can leave it out.
        let mut launches = vec![copy(request, before)?];
        let mut scratch = Vec::new();
        if let Some(index) = texts.and_then(|texts| texts.index.clone()) {
            launches.push(index.launch);
            scratch.push(index.scratch);
        }
        launches.push(launch.groups(groups));
        Ok(NodePlan {
            scratch,
            in_place: vec![InPlace { input: before, output: 1, copy: Some(0) }],
            accumulate: Accumulate::new(DType::F32, chain),
            ..planned(kernel, launches, 0).with_axes([Axis::cached_axis()])
        })
    }
}
