//! What is known of a language model's logits without seeing all of them, so that whoever chooses the next token need not read
//! them: the most likely tokens, and the sums that a softmax divides by.

use crate::dtype::DType;
use crate::error::Result;
use crate::graph::{Builder, TensorType, ValueId};
use crate::op::{ExpSums, TopK};

/// Name of the node that finds the most likely tokens, and of the output that holds the greatest logits of each wanted row, in
/// falling order: `f32[s, k]`.
pub const TOP_LOGITS: &str = "top_logits";
/// Name of the output that holds their tokens: `u32[s, k]`, and 2³²−1 in a row with logits that are not finite.
pub const TOP_TOKENS: &str = "top_tokens";
/// Name of the node that adds up exponentials, and of the output that holds the greatest logit of each part of each wanted row:
/// `f32[s, m]`.
pub const PART_MAXIMA: &str = "part_maxima";
/// Name of the output that holds the sums of [`ExpSums`] over these parts: `f32[s, m]`.
pub const PART_SUMS: &str = "part_sums";
/// Logits of each part but the last.
pub const LOGITS_PART: u32 = 1024;
/// Most tokens that are found for each row.
const MOST: u64 = 64;
/// The longest row of which so many are found; of longer ones half as many.
const LONG: u64 = 1 << 18;

/// Whether logits of this type have these outputs: those in f32 whose number is known.
pub(crate) fn has_top_logits(ty: &TensorType) -> bool {
    let columns = ty.shape.get(1).and_then(|columns| columns.as_const());
    ty.dtype == DType::F32 && columns.is_some_and(|columns| columns > 0)
}

/// Adds the most likely tokens of `logits`, of this type, and the sums of their exponentials at `scales`, as outputs.
pub(crate) fn add_top_logits(
    builder: &mut Builder,
    logits: ValueId,
    ty: &TensorType,
    scales: ValueId,
) -> Result<()> {
    let columns = ty.shape.get(1).and_then(|columns| columns.as_const()).unwrap_or(0);
    let most = if columns > LONG { MOST / 2 } else { MOST };
    let top = TopK { k: most.min(columns) as u32 };
    let sums = ExpSums { part: LOGITS_PART };
    let names = [TOP_LOGITS, TOP_TOKENS];
    let found = builder.node_multi(TOP_LOGITS, top, &[logits], &names.map(String::from))?;
    names.into_iter().zip(found).for_each(|(name, value)| builder.output(name, value));
    let names = [PART_MAXIMA, PART_SUMS];
    let found = builder.node_multi(PART_MAXIMA, sums, &[logits, scales], &names.map(String::from))?;
    names.into_iter().zip(found).for_each(|(name, value)| builder.output(name, value));
    Ok(())
}
