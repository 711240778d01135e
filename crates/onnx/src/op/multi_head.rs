//! `MultiHeadAttention` and `Attention` of ONNX Runtime. Their definitions:
//! <https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md>.

use super::attention::{AttentionHeads, append_past, count, with_heads};
use super::matmul::multiply_stacks;
use super::softmax::softmax_row;
use crate::array::{Array, StridedWalk, broadcast_strides, volume};
use crate::call::{Call, Outputs};
use crate::facts::{CallFacts, InputSizes, terms};
use crate::real::Real;
use tapml_graph::{Error, Result};

/// What is added to the scores of `[batch, heads, queries, keys]`: a filter where a mask is 0, and a bias. Keys behind a query
/// are hidden if attention is causal.
struct Added<T> {
    /// `[batch, heads, queries, keys]`.
    shape: [usize; 4],
    /// The bias, and the place in it of each score.
    bias: Option<(Array<T>, Vec<usize>)>,
    /// Whether a mask keeps a key, `[batch, queries, keys]`.
    mask: Option<Vec<bool>>,
    /// What is added where it does not: a large negative number, not −∞. So a row without keys has weights that sum up to 1.
    filter: T,
    /// Keys before the first query, if those behind a query are hidden.
    causal: Option<usize>,
}

impl<T: Real> Added<T> {
    /// From the inputs of the mask and of the bias at `places`; `past` keys stand before those of this step.
    ///
    /// # Errors
    /// If the mask has an unknown form, or the bias does not broadcast to the scores.
    fn read(call: &Call<'_>, places: [usize; 2], shape: [usize; 4], past: usize) -> Result<Added<T>> {
        volume(&shape)?;
        let [batch, _, queries, keys] = shape;
        // Absent, every key is kept.
        let mask = match call.optional(places[0]) {
            None => None,
            Some(mask) => Some(Self::mask(mask.shape(), &call.integers(places[0])?, [batch, queries, keys])?),
        };
        let bias = match call.optional_array::<T>(places[1])? {
            None => None,
            Some(bias) => {
                let walk = StridedWalk::new(&shape, &broadcast_strides(&bias.shape, &shape)?).collect();
                Some((bias, walk))
            }
        };
        let filter = T::nearest(call.float_or("mask_filter_value", -10000.0)?);
        let causal = call.flag("unidirectional", false)?.then_some(past);
        Ok(Added { shape, bias, mask, filter, causal })
    }

    /// Which keys a mask keeps, `[batch, queries, keys]`: from lengths, from ends and starts, or from numbers of keys.
    fn mask(shape: &[usize], mask: &[i64], [batch, queries, keys]: [usize; 3]) -> Result<Vec<bool>> {
        let rows = |kept: &dyn Fn(usize, usize, usize) -> bool| {
            let at =
                (0..batch * queries * keys).map(|at| (at / keys / queries, at / keys % queries, at % keys));
            at.map(|(n, query, key)| kept(n, query, key)).collect()
        };
        // Form 1: lengths `[batch]`. Form 2: ends, then starts, `[2 · batch]`. Others: a number above 0 keeps a key.
        let within = |n: usize, key: usize| (key as i64) < mask[n];
        Ok(match *shape {
            [own] if own == batch => rows(&|n, _, key| within(n, key)),
            // A batch of 0 matches the first form.
            [own] if own == 2 * batch => rows(&|n, _, key| within(n, key) && key as i64 >= mask[batch + n]),
            [n, k] if (n, k) == (batch, keys) => rows(&|n, _, key| mask[n * keys + key] > 0),
            [n, q, k] if (n, q, k) == (batch, queries, keys) => {
                rows(&|n, query, key| mask[(n * queries + query) * keys + key] > 0)
            }
            _ => {
                let text = format!("a mask {shape:?} for {batch} of {queries} queries and {keys} keys");
                return Err(Error::unsupported(format!("{text} is not served")));
            }
        })
    }

    /// Replaces scores by weights.
    fn weigh(&self, [n, head, query]: [usize; 3], scores: &mut [T]) {
        let [_, heads, queries, keys] = self.shape;
        for (key, score) in scores.iter_mut().enumerate() {
            if let Some((bias, places)) = &self.bias {
                *score += bias.data[places[((n * heads + head) * queries + query) * keys + key]];
            }
            if self.mask.as_ref().is_some_and(|mask| !mask[(n * queries + query) * keys + key]) {
                *score += self.filter;
            }
            if self.causal.is_some_and(|past| key > past + query) {
                *score = T::neg_infinity();
            }
        }
        softmax_row(scores);
    }
}

/// Adds a part of a bias that begins at `first` to the last axis.
///
/// # Errors
/// If the bias is shorter.
fn add_part<T: Real>(x: &mut Array<T>, bias: Option<&Array<T>>, first: usize) -> Result<()> {
    let (Some(bias), width) = (bias, x.shape.last().copied().unwrap_or(0)) else { return Ok(()) };
    let part = bias.data.get(first..first.saturating_add(width)).filter(|_| width > 0);
    let part = part.ok_or_else(|| Error::invalid(format!("a bias {:?} for {:?}", bias.shape, x.shape)))?;
    x.data.chunks_mut(width).for_each(|row| row.iter_mut().zip(part).for_each(|(x, &b)| *x += b));
    Ok(())
}

/// The attribute `num_heads`, without which there is no attention.
fn head_count(call: &Call<'_>) -> Result<usize> {
    count(call, "num_heads")?
        .ok_or_else(|| Error::invalid("attribute `num_heads`: expected a positive integer"))
}

/// `MultiHeadAttention`, with the present keys and values as further outputs.
///
/// # Errors
/// Of kind `Unsupported` for packed inputs and caches that are shared.
pub fn multi_head<T: Real>(call: &Call<'_>) -> Outputs {
    let heads = head_count(call)?;
    for (place, what) in [(8, "past_sequence_length"), (9, "cache_indirection")] {
        if call.optional(place).is_some() {
            return Err(Error::unsupported(format!("the input `{what}` is not served")));
        }
    }
    if call.input(0)?.shape().len() == 5 || call.input(1)?.shape().len() == 5 {
        return Err(Error::unsupported("packed queries, keys and values are not served"));
    }
    let [mut q, mut k, mut v] = [call.array::<T>(0)?, call.array::<T>(1)?, call.array::<T>(2)?];
    let bias = call.optional_array::<T>(3)?;
    let widths = [&q, &k].map(|x| x.shape.last().copied().unwrap_or(0));
    add_part(&mut q, bias.as_ref(), 0)?;
    // Keys and values that have heads already are those of another place, which are ready.
    if k.rank() == 3 && v.rank() == 3 {
        add_part(&mut k, bias.as_ref(), widths[0])?;
        add_part(&mut v, bias.as_ref(), widths[0] + widths[1])?;
    }
    let [q, k, v] = [q, k, v].map(|x| with_heads(x, Some(heads)));
    let past = [call.optional_array::<T>(6)?, call.optional_array::<T>(7)?];
    attend_with_past(call, AttentionHeads { q: q?, k: k?, v: v? }, past, [4, 5]).and_then(|(y, all)| {
        let (k, v) = (call.store(all.k, call.dtype(1)?)?, call.store(all.v, call.dtype(2)?)?);
        Ok(vec![Some(call.store(y, call.dtype(0)?)?), Some(k), Some(v)])
    })
}

/// The attention of queries to keys behind those of the past.
///
/// Gives the result `[batch, length, heads · size]`, and the queries with all keys and values.
fn attend_with_past<T: Real>(
    call: &Call<'_>,
    own: AttentionHeads<T>,
    [past_k, past_v]: [Option<Array<T>>; 2],
    masks: [usize; 2],
) -> Result<(Array<T>, AttentionHeads<T>)> {
    let AttentionHeads { q, k, v } = own;
    let before = past_k.as_ref().and_then(|past| past.shape.get(2)).copied().unwrap_or(0);
    let all = AttentionHeads { q, k: append_past(past_k, k)?, v: append_past(past_v, v)? };
    let shape = [all.q.shape[0], all.q.shape[1], all.q.shape[2], all.k.shape[2]];
    let added = Added::<T>::read(call, masks, shape, before)?;
    let y = all.attend(call.float_or("scale", 0.0)?, |at, scores| {
        added.weigh(at, scores);
        Ok(())
    })?;
    Ok((y, all))
}

/// `Attention` of ONNX Runtime: queries, keys and values are one product of the input, and `present` both keys and values.
///
/// # Errors
/// If hidden sizes do not add up to the columns, or something is not served.
pub fn project_and_attend<T: Real>(call: &Call<'_>) -> Outputs {
    let heads = head_count(call)?;
    if call.optional(6).is_some() {
        return Err(Error::unsupported("the input `past_sequence_length` is not served"));
    }
    for name in ["do_rotary", "rotary_embedding_dim", "past_present_share_buffer"] {
        if call.int_or(name, 0)? != 0 {
            return Err(Error::unsupported(format!("the attribute `{name}` is not served")));
        }
    }
    let (x, w) = (call.array::<T>(0)?, call.array::<T>(1)?);
    if x.rank() != 3 || w.rank() != 2 {
        return Err(Error::invalid(format!("an input {:?} and weights {:?}", x.shape, w.shape)));
    }
    let mut all = multiply_stacks(&x, &w)?;
    add_part(&mut all, call.optional_array(2)?.as_ref(), 0)?;
    let width = w.shape[1];
    // Without the attribute the columns are three equal parts.
    let own = call.ints("qkv_hidden_sizes")?.unwrap_or_else(|| vec![width as i64 / 3; 3]);
    let sizes = own.iter().map(|&size| usize::try_from(size).ok()).collect::<Option<Vec<usize>>>();
    let sizes = sizes.filter(|sizes| {
        sizes.len() == 3 && sizes.iter().try_fold(0usize, |a, &b| a.checked_add(b)) == Some(width)
    });
    let sizes = sizes.ok_or_else(|| Error::invalid(format!("hidden sizes {own:?} of {width} columns")))?;
    let part = |first: usize, count: usize| {
        let data =
            all.data.chunks(width.max(1)).flat_map(|row| &row[first..first + count]).copied().collect();
        with_heads(Array { shape: vec![x.shape[0], x.shape[1], count], data }, Some(heads))
    };
    let (q, k, v) = (part(0, sizes[0])?, part(sizes[0], sizes[1])?, part(sizes[0] + sizes[1], sizes[2])?);
    let past = match call.optional_array::<T>(4)? {
        None => [None, None],
        Some(past) if past.rank() == 5 && past.shape[0] == 2 => {
            let shape = past.shape[1..].to_vec();
            // `past` is `[2, batch, heads, length, size]`: keys, then values.
            let (k, v) = past.data.split_at(past.data.len() / 2);
            [k, v].map(|data| Some(Array { shape: shape.clone(), data: data.to_vec() }))
        }
        Some(past) => {
            return Err(Error::invalid(format!("input 4: expected two caches, found {:?}", past.shape)));
        }
    };
    let (y, all) = attend_with_past(call, AttentionHeads { q, k, v }, past, [3, 5])?;
    let dtype = call.dtype(0)?;
    let mut outputs = vec![Some(call.store(y, dtype)?)];
    if call.asks(1) {
        // Both share one tensor, `[2, …]`.
        if all.k.shape != all.v.shape {
            return Err(Error::unsupported("present keys and values of several sizes are not served"));
        }
        let shape = [&[2], all.k.shape.as_slice()].concat();
        let data = [all.k.data, all.v.data].concat();
        outputs.push(Some(call.store(Array { shape, data }, dtype)?));
    }
    Ok(outputs)
}

/// The longer of the sums over a head and over the keys.
pub fn multi_head_terms(sizes: &InputSizes<'_>) -> CallFacts {
    let heads = usize::try_from(sizes.int("num_heads", 1)).unwrap_or(1).max(1);
    let axis = if sizes.shape(1).len() == 4 { 2 } else { 1 };
    let keys = sizes.size(1, axis) + if sizes.has(6) { sizes.size(6, 2) } else { 0 };
    terms((sizes.size(0, -1) / heads).max(keys))
}

/// The longest of the sums of the projection, over a head and over the keys.
pub fn projected_terms(sizes: &InputSizes<'_>) -> CallFacts {
    let keys = sizes.size(0, 1) + if sizes.has(4) { sizes.size(4, 3) } else { 0 };
    terms(sizes.size(0, -1).saturating_add(usize::from(sizes.has(2))).max(sizes.size(1, -1) / 3).max(keys))
}
