//! The most likely tokens of a language model, so that whoever chooses the next one need not see all logits.

use crate::dtype::DType;
use crate::error::Result;
use crate::graph::{Builder, TensorType, ValueId};
use crate::op::TopK;

/// Name of the node that finds the most likely tokens, and of the output that holds the greatest logits of each wanted row, in
/// falling order: `f32[s, k]`.
pub const TOP_LOGITS: &str = "top_logits";
/// Name of the output that holds their tokens: `u32[s, k]`, and 2³²−1 in a row with logits that are not finite.
pub const TOP_TOKENS: &str = "top_tokens";
/// Most tokens that are found for each row.
const MOST: u64 = 64;
/// The longest row of which so many are found; of longer ones half as many.
const LONG: u64 = 1 << 18;

/// Adds the most likely tokens of `logits`, of this type, as outputs, if they are f32 and their number is known.
pub(crate) fn add_top_logits(builder: &mut Builder, logits: ValueId, ty: &TensorType) -> Result<()> {
    let columns = ty.shape.get(1).and_then(|columns| columns.as_const());
    let Some(columns) = columns.filter(|&columns| columns > 0 && ty.dtype == DType::F32) else {
        return Ok(());
    };
    let most = if columns > LONG { MOST / 2 } else { MOST };
    let op = TopK { k: most.min(columns) as u32 };
    let names = [TOP_LOGITS, TOP_TOKENS];
    let outputs = builder.node_multi(TOP_LOGITS, op, &[logits], &names.map(String::from))?;
    names.into_iter().zip(outputs).for_each(|(name, value)| builder.output(name, value));
    Ok(())
}
