//! Which token comes first.

use tapml_graph::{Error, Result, Tensor};

/// Index of the largest value of the last row; the first of equals.
pub(crate) fn argmax_last(logits: &Tensor) -> Result<u32> {
    let last = logits.shape().first().and_then(|&rows| logits.rows(rows.checked_sub(1)?, 1));
    let last = last.ok_or_else(|| Error::bug("logits without rows"))?;
    Ok(argmax(&last.to_f32()))
}

/// Index of the largest value; the first of equals.
/// NaN is never larger; a row without any number gives 0.
pub fn argmax(row: &[f32]) -> u32 {
    let best = row
        .iter()
        .enumerate()
        .fold((0, f32::NEG_INFINITY), |best, (i, &v)| if v > best.1 { (i, v) } else { best });
    best.0 as u32
}
