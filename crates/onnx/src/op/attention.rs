//! `Attention` and `RotaryEmbedding` of the standard, and what they share with those of ONNX Runtime.
//!
//! Both exist from version 23 on. Inside, heads are an axis of their own: `[batch, heads, length, size]`. Inputs of three axes are
//! brought to that form, and outputs back from it.

use super::matmul::multiply_stacks;
use super::softmax::softmax_row;
use crate::array::{Array, StridedWalk, broadcast_strides};
use crate::call::{Call, Outputs};
use crate::facts::{CallFacts, InputSizes, terms};
use crate::real::Real;
use tapml_graph::{DType, Error, Result};

/// A count from an attribute; `None` if it is absent or 0.
pub(super) fn count(call: &Call<'_>, name: &'static str) -> Result<Option<usize>> {
    let value = call.int_or(name, 0)?;
    let count =
        usize::try_from(value).map_err(|_| Error::invalid(format!("attribute `{name}` is {value}")))?;
    Ok((count > 0).then_some(count))
}

/// `[batch, length, heads · size]` as `[batch, heads, length, size]`; what has four axes stays.
pub(super) fn with_heads<T: Real>(x: Array<T>, heads: Option<usize>) -> Result<Array<T>> {
    if x.rank() == 4 {
        return Ok(x);
    }
    let heads = heads.filter(|&heads| x.rank() == 3 && x.shape[2].is_multiple_of(heads));
    let heads = heads.ok_or_else(|| Error::invalid(format!("{:?} cannot be split in heads", x.shape)))?;
    let shape = vec![x.shape[0], x.shape[1], heads, x.shape[2] / heads];
    Ok(x.reshape(shape)?.transpose(&[0, 2, 1, 3]))
}

/// Keys or values behind those of earlier steps.
///
/// Both are `[batch, heads, length, size]`; lengths add up, all other sizes have to be the same.
pub(super) fn append_past<T: Real>(past: Option<Array<T>>, x: Array<T>) -> Result<Array<T>> {
    let Some(past) = past else { return Ok(x) };
    let same = past.rank() == 4 && [0, 1, 3].iter().all(|&axis| past.shape[axis] == x.shape[axis]);
    if !same {
        return Err(Error::invalid(format!("{:?} cannot be appended to {:?}", x.shape, past.shape)));
    }
    let mut shape = past.shape.clone();
    shape[2] += x.shape[2];
    let mut y = Array::<T>::zeros(shape)?;
    // Within a head all tokens lie in a row, so that each head takes two copies.
    let (old, new) = (past.shape[2] * past.shape[3], x.shape[2] * x.shape[3]);
    for head in 0..past.shape[0] * past.shape[1] {
        let to = &mut y.data[head * (old + new)..(head + 1) * (old + new)];
        to[..old].copy_from_slice(&past.data[head * old..(head + 1) * old]);
        to[old..].copy_from_slice(&x.data[head * new..(head + 1) * new]);
    }
    Ok(y)
}

/// Each head as often as queries share it: grouped-query attention, where consecutive heads of queries read one of keys.
///
/// # Errors
/// If the heads of queries are no multiple of those of keys.
pub(super) fn repeat_heads<T: Real>(x: &Array<T>, heads: usize) -> Result<Array<T>> {
    let own = x.shape[1];
    if own == heads {
        return Ok(x.clone());
    }
    if own == 0 || !heads.is_multiple_of(own) {
        return Err(Error::invalid(format!("{heads} heads of queries for {own} of keys")));
    }
    // A new axis behind the heads is repeated and merged, so that copies of one head stand together.
    let shape = [x.shape[0], own, 1, x.shape[2], x.shape[3]];
    let repeated = x.clone().reshape(shape.to_vec())?;
    let repeated = repeated.broadcast(&[shape[0], own, heads / own, shape[3], shape[4]])?;
    repeated.reshape(vec![shape[0], heads, shape[3], shape[4]])
}

/// What is added to the scores, `[batch, heads, queries, keys]`: the mask, and −∞ where a key is hidden.
///
/// `past` counts the keys of earlier steps. A mask of truths says which keys are kept; one of floats is added as it is.
fn bias<T: Real>(call: &Call<'_>, shape: &[usize], past: usize) -> Result<Array<T>> {
    let mut bias = Array::<T>::zeros(shape.to_vec())?;
    let (queries, keys) = (shape[2], shape[3]);
    let hidden = T::neg_infinity();
    if let Some(mask) = call.optional(3) {
        let mut mask = match mask.dtype() {
            DType::Bool => call.array::<bool>(3)?.map(|kept| if kept { T::zero() } else { hidden }),
            _ => call.array::<T>(3)?,
        };
        // A last size of 1 broadcasts instead.
        // A mask that is too short hides the keys behind it.
        if let Some(&last) = mask.shape.last().filter(|&&last| last != 1 && last < keys) {
            let rows = mask.data.chunks(last.max(1));
            let data =
                rows.flat_map(|row| row.iter().copied().chain(std::iter::repeat_n(hidden, keys - last)));
            mask = Array { data: data.collect(), shape: mask.shape };
            *mask.shape.last_mut().ok_or_else(|| Error::bug("the mask has an axis"))? = keys;
        }
        let places = StridedWalk::new(shape, &broadcast_strides(&mask.shape, shape)?);
        bias.data.iter_mut().zip(places).for_each(|(bias, at)| *bias = mask.data[at]);
    }
    // `nonpad_kv_seqlen` of version 24: keys of each of the batch that are no padding.
    let lengths = call.optional_integers(6)?;
    if let Some(lengths) = &lengths
        && lengths.len() != shape[0]
    {
        return Err(Error::invalid(format!(
            "input 6: {} lengths for a batch of {}",
            lengths.len(),
            shape[0]
        )));
    }
    let causal = call.flag("is_causal", false)?;
    for (at, bias) in bias.data.iter_mut().enumerate() {
        let (key, query, n) = (at % keys, at / keys % queries, at / keys / queries / shape[1]);
        let padding = lengths.as_ref().is_some_and(|lengths| key as i64 >= lengths[n]);
        // Queries are the last of the keys that are there.
        let ahead = lengths.as_ref().map_or(past as i64, |lengths| lengths[n] - queries as i64);
        if causal && key as i64 > ahead + query as i64 || padding {
            *bias = hidden;
        }
    }
    Ok(bias)
}

/// `Attention`: `softmax(softcap(Q·Kᵀ·scale) + mask)·V`, with the present keys and values and the scores as further outputs. The
/// soft cap stands before the mask, and a query that sees no key gives zeros, as the standard says since its release 1.23.
///
/// # Errors
/// If shapes do not fit each other, a mask does not broadcast, or an attribute is not served.
pub fn attention<T: Real>(call: &Call<'_>) -> Outputs {
    let (q_heads, kv_heads) = (count(call, "q_num_heads")?, count(call, "kv_num_heads")?);
    // The result has as many axes as the queries.
    let flat = call.input(0)?.shape().len() == 3;
    let q = with_heads(call.array::<T>(0)?, q_heads)?;
    let (k, v) = (with_heads(call.array::<T>(1)?, kv_heads)?, with_heads(call.array::<T>(2)?, kv_heads)?);
    if q.rank() != 4 || k.shape[..3] != v.shape[..3] || q.shape[0] != k.shape[0] || q.shape[3] != k.shape[3] {
        let text = format!("queries {:?}, keys {:?} and values {:?} do not fit", q.shape, k.shape, v.shape);
        return Err(Error::invalid(text));
    }
    let past = call.optional_array::<T>(4)?;
    let before = past.as_ref().and_then(|past| past.shape.get(2)).copied().unwrap_or(0);
    let (k, v) = (append_past(past, k)?, append_past(call.optional_array(5)?, v)?);
    if k.shape[2] != v.shape[2] {
        return Err(Error::invalid(format!("{} keys and {} values", k.shape[2], v.shape[2])));
    }
    let scale = match call.float("scale")? {
        Some(scale) => T::nearest(scale),
        None => T::one() / T::count(q.shape[3]).sqrt(),
    };
    let softcap = T::nearest(call.float_or("softcap", 0.0)?);
    let mode = call.int_or("qk_matmul_output_mode", 0)?;
    // The precision of the softmax bounds what a target may do; the exact value knows none.
    call.ignore(&["softmax_precision"]);
    let mut scores = multiply_stacks(&q, &repeat_heads(&k, q.shape[1])?.transpose(&[0, 1, 3, 2]))?;
    scores.data.iter_mut().for_each(|s| *s = *s * scale);
    // `qk_matmul_output_mode` names the stage of the scores that the fourth output shows.
    let mut told = (mode == 0).then(|| scores.clone());
    if softcap > T::zero() {
        scores.data.iter_mut().for_each(|s| *s = (*s / softcap).tanh() * softcap);
    }
    told = if mode == 1 { Some(scores.clone()) } else { told };
    let bias = bias::<T>(call, &scores.shape, before)?;
    scores.data.iter_mut().zip(&bias.data).for_each(|(s, &b)| *s += b);
    told = if mode == 2 { Some(scores.clone()) } else { told };
    let keys = scores.shape[3].max(1);
    for (row, bias) in scores.data.chunks_mut(keys).zip(bias.data.chunks(keys)) {
        // The softmax of a row of −∞ alone would be NaN.
        // A query that sees no key gives zeros.
        if bias.iter().all(|&bias| bias == T::neg_infinity()) {
            row.fill(T::zero())
        } else {
            softmax_row(row)
        }
    }
    told = if mode == 3 { Some(scores.clone()) } else { told };
    let told =
        told.ok_or_else(|| Error::unsupported(format!("`qk_matmul_output_mode` = {mode} is not served")))?;
    let mut y = multiply_stacks(&scores, &repeat_heads(&v, q.shape[1])?)?;
    if flat {
        let shape = vec![y.shape[0], y.shape[2], y.shape[1] * y.shape[3]];
        y = y.transpose(&[0, 2, 1, 3]).reshape(shape)?;
    }
    let dtype = call.dtype(0)?;
    Ok(vec![
        Some(call.store(y, dtype)?),
        Some(call.store(k, call.dtype(1)?)?),
        Some(call.store(v, call.dtype(2)?)?),
        Some(call.store(told, dtype)?),
    ])
}

/// The longer of the sums over a head and over the keys.
pub fn attention_terms(sizes: &InputSizes<'_>) -> CallFacts {
    let flat = sizes.shape(1).len() == 3;
    let heads = usize::try_from(sizes.int("kv_num_heads", 1)).unwrap_or(1).max(1);
    let keys = sizes.size(1, -2) + if sizes.has(4) { sizes.size(4, 2) } else { 0 };
    terms((sizes.size(1, -1) / if flat { heads } else { 1 }).max(keys))
}

/// Cosines and sines, a row of as many as there are pairs for each position.
pub(super) struct Angles<T> {
    /// Cosines, `[…, pairs]`.
    cos: Array<T>,
    /// Sines in the same shape.
    sin: Array<T>,
    /// Whether pairs are neighbours; else half of the turned elements apart.
    interleaved: bool,
}

impl<T: Real> Angles<T> {
    /// From the inputs at the places `cos` and `sin`, which have one shape of two axes or more.
    pub(super) fn read(call: &Call<'_>, cos: usize, sin: usize, interleaved: bool) -> Result<Angles<T>> {
        let (cos, sin) = (call.array::<T>(cos)?, call.array::<T>(sin)?);
        if cos.shape == sin.shape && cos.rank() >= 2 {
            Ok(Angles { cos, sin, interleaved })
        } else {
            Err(Error::invalid(format!("cosines {:?} and sines {:?}", cos.shape, sin.shape)))
        }
    }

    /// Pairs of a head that are turned.
    pub(super) fn pairs(&self) -> usize {
        self.cos.shape.last().copied().unwrap_or(0)
    }

    /// Rows of angles.
    fn rows(&self) -> usize {
        self.cos.data.len() / self.pairs().max(1)
    }

    /// Turns the first elements of each head of `x: [batch, heads, length, size]` by the angles in row `row(n, at)`.
    pub(super) fn turn(&self, x: &mut Array<T>, row: impl Fn(usize, usize) -> i64) -> Result<()> {
        let [heads, length, size] = [x.shape[1], x.shape[2], x.shape[3]];
        let (half, rows) = (self.pairs(), self.rows());
        if 2 * half > size {
            let text = format!("angles {:?} for heads of {size} elements", self.cos.shape);
            return Err(Error::invalid(text));
        }
        for (at, x) in x.data.chunks_mut(size.max(1)).enumerate() {
            let row = usize::try_from(row(at / length / heads, at % length)).ok().filter(|&row| row < rows);
            let row = row.ok_or_else(|| {
                Error::invalid(format!("a position outside of the {rows} that have angles"))
            })?;
            for i in 0..half {
                let (a, b) = if self.interleaved { (2 * i, 2 * i + 1) } else { (i, i + half) };
                let (cos, sin) = (self.cos.data[row * half + i], self.sin.data[row * half + i]);
                // A rotation of the plane that the pair spans.
                (x[a], x[b]) = (cos * x[a] - sin * x[b], sin * x[a] + cos * x[b]);
            }
        }
        Ok(())
    }
}

/// `RotaryEmbedding`: pairs of elements of each head turned by the angles of their position.
///
/// Without positions, angles are given for each token.
///
/// # Errors
/// If there are other numbers of angles than of tokens, or a position has none.
pub fn rotary<T: Real>(call: &Call<'_>) -> Outputs {
    let angles = Angles::<T>::read(call, 1, 2, call.flag("interleaved", false)?)?;
    let positions = call.optional_integers(3)?;
    rotate_input(call, &angles, |batch, length| match &positions {
        None => (angles.rows() == batch * length).then(|| (0..batch * length).map(|at| at as i64).collect()),
        Some(list) => (list.len() == batch * length).then(|| list.clone()),
    })
}

/// `RotaryEmbedding` of ONNX Runtime: positions are given, for each element or the first one for all.
///
/// # Errors
/// Of kind `Unsupported` for packed batches and the attribute `scale`.
pub fn rotary_from<T: Real>(call: &Call<'_>) -> Outputs {
    if call.int_or("is_packed_batching", 0)? != 0 || call.float_or("scale", 1.0)? != 1.0 {
        return Err(Error::unsupported("packed batches and the attribute `scale` are not served"));
    }
    let angles = Angles::<T>::read(call, 2, 3, call.flag("interleaved", false)?)?;
    let positions = call.integers(1)?;
    rotate_input(call, &angles, |batch, length| match positions.as_slice() {
        &[first] => Some((0..batch * length).map(|at| first.saturating_add((at % length) as i64)).collect()),
        list => (list.len() == batch * length).then(|| list.to_vec()),
    })
}

/// The first input turned, at the positions that `positions(batch, length)` gives.
fn rotate_input<T: Real>(
    call: &Call<'_>,
    angles: &Angles<T>,
    positions: impl Fn(usize, usize) -> Option<Vec<i64>>,
) -> Outputs {
    let x = call.array::<T>(0)?;
    let shape = x.shape.clone();
    // The standard requires `num_heads` for three axes.
    // ONNX Runtime tells the heads of three axes by the angles if it is not told.
    let own =
        (call.version() < 23).then_some(shape.last().copied().unwrap_or(0) / (2 * angles.pairs()).max(1));
    let heads = count(call, "num_heads")?.or(own);
    let mut x = with_heads(x, heads)?;
    let size = x.shape[3];
    let turned = count(call, "rotary_embedding_dim")?.unwrap_or(size);
    if turned > size || turned != 2 * angles.pairs() {
        let text = format!("angles {:?} for {turned} of {size} elements", angles.cos.shape);
        return Err(Error::invalid(text));
    }
    let [batch, length] = [x.shape[0], x.shape[2]];
    let positions = positions(batch, length)
        .ok_or_else(|| Error::invalid(format!("expected angles for {batch} times {length} positions")))?;
    angles.turn(&mut x, |n, at| positions[n * length + at])?;
    if shape.len() == 3 {
        x = x.transpose(&[0, 2, 1, 3]).reshape(shape)?;
    }
    call.like_first(x)
}

/// Queries, keys and values of `[batch, heads, length, size]` each, several heads of queries for one of keys.
pub(super) struct AttentionHeads<T> {
    /// Queries.
    pub q: Array<T>,
    /// Keys, with a number of heads that divides the one of queries.
    pub k: Array<T>,
    /// Values, with as many heads as keys; their size may be another.
    pub v: Array<T>,
}

impl<T: Real> AttentionHeads<T> {
    /// `weights(q·kᵀ·scale)·v` as `[batch, length, heads · size]`. The scale is 1/√size if it is 0. `weights` gets batch, head
    /// and query, and the scores of the keys, which it replaces.
    pub(super) fn attend(
        &self,
        scale: f64,
        weights: impl Fn([usize; 3], &mut [T]) -> Result<()>,
    ) -> Result<Array<T>> {
        let AttentionHeads { q, k, v } = self;
        let fits = [q, k, v].iter().all(|x| x.rank() == 4)
            && k.shape[..3] == v.shape[..3]
            && (q.shape[0], q.shape[3]) == (k.shape[0], k.shape[3]);
        if !fits {
            let text =
                format!("queries {:?}, keys {:?} and values {:?} do not fit", q.shape, k.shape, v.shape);
            return Err(Error::invalid(text));
        }
        // ONNX Runtime's operators take 0, the default of the attribute, for "not given".
        let own = T::one() / T::count(q.shape[3]).sqrt();
        let scale = if scale == 0.0 { own } else { T::nearest(scale) };
        let mut scores = multiply_stacks(q, &repeat_heads(k, q.shape[1])?.transpose(&[0, 1, 3, 2]))?;
        let [heads, queries, keys] = [scores.shape[1], scores.shape[2], scores.shape[3]];
        for (at, row) in scores.data.chunks_mut(keys.max(1)).enumerate() {
            row.iter_mut().for_each(|score| *score = *score * scale);
            weights([at / queries / heads, at / queries % heads, at % queries], row)?;
        }
        let y = multiply_stacks(&scores, &repeat_heads(v, q.shape[1])?)?;
        let shape = vec![y.shape[0], y.shape[2], y.shape[1] * y.shape[3]];
        y.transpose(&[0, 2, 1, 3]).reshape(shape)
    }
}
