//! `Attention` and `RotaryEmbedding` of the standard.

use super::matmul::stacked;
use super::softmax::softmax_row;
use crate::array::{Array, Walk, broadcast_strides};
use crate::call::{Call, Outputs};
use crate::facts::{Facts, Sizes, terms};
use crate::real::Real;
use tapml_graph::{DType, Error, Result};

/// A count from an attribute; `None` if it is absent or 0.
fn count(call: &Call<'_>, name: &'static str) -> Result<Option<usize>> {
    let value = call.int_or(name, 0)?;
    let count =
        usize::try_from(value).map_err(|_| Error::invalid(format!("attribute `{name}` is {value}")))?;
    Ok((count > 0).then_some(count))
}

/// `[batch, length, heads · size]` as `[batch, heads, length, size]`; what has four axes stays.
fn with_heads<T: Real>(x: Array<T>, heads: Option<usize>) -> Result<Array<T>> {
    if x.rank() == 4 {
        return Ok(x);
    }
    let heads = heads.filter(|&heads| x.rank() == 3 && x.shape[2].is_multiple_of(heads));
    let heads = heads.ok_or_else(|| Error::invalid(format!("{:?} cannot be split in heads", x.shape)))?;
    let shape = vec![x.shape[0], x.shape[1], heads, x.shape[2] / heads];
    Ok(x.reshaped(shape)?.transposed(&[0, 2, 1, 3]))
}

/// Keys or values behind those of earlier steps.
fn appended<T: Real>(past: Option<Array<T>>, x: Array<T>) -> Result<Array<T>> {
    let Some(past) = past else { return Ok(x) };
    let same = past.rank() == 4 && [0, 1, 3].iter().all(|&axis| past.shape[axis] == x.shape[axis]);
    if !same {
        return Err(Error::invalid(format!("{:?} cannot be appended to {:?}", x.shape, past.shape)));
    }
    let mut shape = past.shape.clone();
    shape[2] += x.shape[2];
    let mut y = Array::<T>::zeros(shape)?;
    let (old, new) = (past.shape[2] * past.shape[3], x.shape[2] * x.shape[3]);
    for head in 0..past.shape[0] * past.shape[1] {
        let to = &mut y.data[head * (old + new)..(head + 1) * (old + new)];
        to[..old].copy_from_slice(&past.data[head * old..(head + 1) * old]);
        to[old..].copy_from_slice(&x.data[head * new..(head + 1) * new]);
    }
    Ok(y)
}

/// Each head as often as queries share it.
fn repeated<T: Real>(x: &Array<T>, heads: usize) -> Result<Array<T>> {
    let own = x.shape[1];
    if own == heads {
        return Ok(x.clone());
    }
    if own == 0 || !heads.is_multiple_of(own) {
        return Err(Error::invalid(format!("{heads} heads of queries for {own} of keys")));
    }
    let shape = [x.shape[0], own, 1, x.shape[2], x.shape[3]];
    let repeated = x.clone().reshaped(shape.to_vec())?;
    let repeated = repeated.broadcast(&[shape[0], own, heads / own, shape[3], shape[4]])?;
    repeated.reshaped(vec![shape[0], heads, shape[3], shape[4]])
}

/// What is added to the scores, `[batch, heads, queries, keys]`.
fn bias<T: Real>(call: &Call<'_>, shape: &[usize], past: usize) -> Result<Array<T>> {
    let mut bias = Array::<T>::zeros(shape.to_vec())?;
    let (queries, keys) = (shape[2], shape[3]);
    let hidden = T::neg_infinity();
    if let Some(mask) = call.optional(3) {
        let mut mask = match mask.dtype() {
            DType::Bool => call.array::<bool>(3)?.map(|kept| if kept { T::zero() } else { hidden }),
            _ => call.array::<T>(3)?,
        };
        // A mask that is too short hides the keys behind it.
        if let Some(&last) = mask.shape.last().filter(|&&last| last != 1 && last < keys) {
            let rows = mask.data.chunks(last.max(1));
            let data =
                rows.flat_map(|row| row.iter().copied().chain(std::iter::repeat_n(hidden, keys - last)));
            mask = Array { data: data.collect(), shape: mask.shape };
            *mask.shape.last_mut().ok_or_else(|| Error::bug("the mask has an axis"))? = keys;
        }
        let places = Walk::new(shape, &broadcast_strides(&mask.shape, shape)?);
        bias.data.iter_mut().zip(places).for_each(|(bias, at)| *bias = mask.data[at]);
    }
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
        if causal && key > past + query || padding {
            *bias = hidden;
        }
    }
    Ok(bias)
}

/// `Attention`: `softmax(softcap(Q·Kᵀ·scale + mask))·V`, with the present keys and values and the scores as further outputs.
pub fn attention<T: Real>(call: &Call<'_>) -> Outputs {
    let (q_heads, kv_heads) = (count(call, "q_num_heads")?, count(call, "kv_num_heads")?);
    let flat = call.input(0)?.shape().len() == 3;
    let q = with_heads(call.array::<T>(0)?, q_heads)?;
    let (k, v) = (with_heads(call.array::<T>(1)?, kv_heads)?, with_heads(call.array::<T>(2)?, kv_heads)?);
    if q.rank() != 4 || k.shape[..3] != v.shape[..3] || q.shape[0] != k.shape[0] || q.shape[3] != k.shape[3] {
        let text = format!("queries {:?}, keys {:?} and values {:?} do not fit", q.shape, k.shape, v.shape);
        return Err(Error::invalid(text));
    }
    let past = call.optional_array::<T>(4)?;
    let before = past.as_ref().and_then(|past| past.shape.get(2)).copied().unwrap_or(0);
    let (k, v) = (appended(past, k)?, appended(call.optional_array(5)?, v)?);
    if k.shape[2] != v.shape[2] {
        return Err(Error::invalid(format!("{} keys and {} values", k.shape[2], v.shape[2])));
    }
    let scale = match call.float("scale")? {
        Some(scale) => T::of(scale),
        None => T::one() / T::count(q.shape[3]).sqrt(),
    };
    let softcap = T::of(call.float_or("softcap", 0.0)?);
    let mode = call.int_or("qk_matmul_output_mode", 0)?;
    // The precision of the softmax bounds what a target may do; the exact value knows none.
    call.ignore(&["softmax_precision"]);
    let mut scores = stacked(&q, &repeated(&k, q.shape[1])?.transposed(&[0, 1, 3, 2]))?;
    scores.data.iter_mut().for_each(|s| *s = *s * scale);
    let mut told = (mode == 0).then(|| scores.clone());
    let bias = bias::<T>(call, &scores.shape, before)?;
    scores.data.iter_mut().zip(&bias.data).for_each(|(s, &b)| *s += b);
    told = if mode == 1 { Some(scores.clone()) } else { told };
    if softcap > T::zero() {
        scores.data.iter_mut().for_each(|s| *s = (*s / softcap).tanh() * softcap);
    }
    told = if mode == 2 { Some(scores.clone()) } else { told };
    let keys = scores.shape[3];
    if keys > 0 {
        scores.data.chunks_mut(keys).for_each(softmax_row);
    }
    told = if mode == 3 { Some(scores.clone()) } else { told };
    let told =
        told.ok_or_else(|| Error::unsupported(format!("`qk_matmul_output_mode` = {mode} is not served")))?;
    let mut y = stacked(&scores, &repeated(&v, q.shape[1])?)?;
    if flat {
        let shape = vec![y.shape[0], y.shape[2], y.shape[1] * y.shape[3]];
        y = y.transposed(&[0, 2, 1, 3]).reshaped(shape)?;
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
pub fn attention_terms(sizes: &Sizes<'_>) -> Facts {
    let flat = sizes.shape(1).len() == 3;
    let heads = usize::try_from(sizes.int("kv_num_heads", 1)).unwrap_or(1).max(1);
    let keys = sizes.size(1, -2) + if sizes.has(4) { sizes.size(4, 2) } else { 0 };
    terms((sizes.size(1, -1) / if flat { heads } else { 1 }).max(keys))
}

/// `RotaryEmbedding`: pairs of elements of each head turned by the angles of their position.
pub fn rotary<T: Real>(call: &Call<'_>) -> Outputs {
    let x = call.array::<T>(0)?;
    let (cos, sin) = (call.array::<T>(1)?, call.array::<T>(2)?);
    let shape = x.shape.clone();
    let heads = count(call, "num_heads")?;
    let interleaved = call.flag("interleaved", false)?;
    let mut x = with_heads(x, heads)?;
    let [batch, heads, length, size] = [x.shape[0], x.shape[1], x.shape[2], x.shape[3]];
    let turned = count(call, "rotary_embedding_dim")?.unwrap_or(size);
    let half = turned / 2;
    if turned > size || !turned.is_multiple_of(2) || cos.shape != sin.shape || cos.shape.last() != Some(&half)
    {
        return Err(Error::invalid(format!("angles {:?} for {turned} of {size} elements", cos.shape)));
    }
    let positions = call.optional_integers(3)?;
    let rows = cos.data.len() / half.max(1);
    if positions.as_ref().map_or(rows, Vec::len) != batch * length {
        return Err(Error::invalid(format!("expected angles for {batch} times {length} positions")));
    }
    for head in 0..batch * heads {
        for at in 0..length {
            let own = head / heads * length + at;
            let row = positions.as_ref().map_or(Some(own), |list| usize::try_from(list[own]).ok());
            let row = row.filter(|&row| row < rows).ok_or_else(|| {
                Error::invalid(format!("a position outside of the {rows} that have angles"))
            })?;
            let x = &mut x.data[(head * length + at) * size..][..size];
            for i in 0..half {
                let (a, b) = if interleaved { (2 * i, 2 * i + 1) } else { (i, i + half) };
                let (cos, sin) = (cos.data[row * half + i], sin.data[row * half + i]);
                (x[a], x[b]) = (cos * x[a] - sin * x[b], sin * x[a] + cos * x[b]);
            }
        }
    }
    if shape.len() == 3 {
        x = x.transposed(&[0, 2, 1, 3]).reshaped(shape)?;
    }
    call.like_first(x)
}
