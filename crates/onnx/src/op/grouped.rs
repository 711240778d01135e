//! `GroupQueryAttention` of ONNX Runtime: causal attention of this step's queries to cached keys and to its own. Its
//! definition: <https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.GroupQueryAttention>.

use super::attention::{Angles, AttentionHeads, count, with_heads};
use crate::array::{Array, StridedWalk, broadcast_strides};
use crate::call::{Call, Outputs};
use crate::facts::{CallFacts, InputSizes, terms};
use crate::real::Real;
use tapml_graph::{Error, Result};

/// Where the tokens of this step stand, for each of the batch.
///
/// A batch holds sequences of several lengths. All have `length` rows in this step, behind different numbers of cached tokens.
struct TokenPlaces {
    /// Tokens cached before it.
    past: Vec<usize>,
    /// Tokens cached behind it.
    total: Vec<usize>,
    /// Tokens that the present keys and values have room for.
    room: usize,
    /// Keys that a bias has numbers for.
    keys: usize,
}

impl TokenPlaces {
    /// Of `length` tokens, for caches with room for `cached`.
    ///
    /// # Errors
    /// If a length is not positive, greater than the whole, or smaller than the rows of this step.
    fn read(call: &Call<'_>, batch: usize, length: usize, cached: usize) -> Result<TokenPlaces> {
        // Inputs `seqlens_k`, which counts the tokens of each sequence less one, and `total_sequence_length`.
        let (last, keys) = (call.integers(5)?, call.integer(6)?);
        let wrong = |what: String| Error::invalid(format!("{length} tokens of this step, {what}"));
        let keys =
            usize::try_from(keys).map_err(|_| wrong(format!("and a `total_sequence_length` of {keys}")))?;
        if last.len() != batch {
            return Err(wrong(format!("and {} `seqlens_k` for a batch of {batch}", last.len())));
        }
        // A cache may have more room than there are tokens.
        let room = keys.max(cached);
        let (mut past, mut total) = (Vec::new(), Vec::new());
        for &last in &last {
            let all = usize::try_from(last.saturating_add(1)).ok().filter(|&all| all > 0 && all <= keys);
            let all = all.ok_or_else(|| wrong(format!("a `seqlens_k` of {last} of {keys} tokens in all")))?;
            // A prompt shorter than its rows: the operator leaves what the others give open.
            let before = all.checked_sub(length).ok_or_else(|| {
                Error::unsupported(format!("{length} rows for a prompt of {all} tokens are not served"))
            })?;
            if before > cached {
                return Err(wrong(format!("{before} before it, and {cached} cached ones")));
            }
            past.push(before);
            total.push(all);
        }
        Ok(TokenPlaces { past, total, room, keys })
    }

    /// The present keys or values: those of the past, those of this step, zeros where nothing is cached yet.
    fn present<T: Real>(&self, past: Option<&Array<T>>, x: &Array<T>) -> Result<Array<T>> {
        // Tokens of this step stand right behind those of the past: rows behind them stay zeros.
        let [batch, heads, length, size] = [x.shape[0], x.shape[1], x.shape[2], x.shape[3]];
        let mut y = Array::<T>::zeros(vec![batch, heads, self.room, size])?;
        for head in 0..batch * heads {
            let before = self.past[head / heads] * size;
            let to = &mut y.data[head * self.room * size..];
            if let Some(past) = past {
                let cached = past.shape[2] * size;
                to[..before].copy_from_slice(&past.data[head * cached..][..before]);
            }
            to[before..before + length * size]
                .copy_from_slice(&x.data[head * length * size..][..length * size]);
        }
        Ok(y)
    }
}

/// Queries, keys and values of this step: of an input each, or of one for all.
///
/// # Errors
/// If an input does not consist of whole heads.
fn heads<T: Real>(call: &Call<'_>, heads: usize, kv_heads: usize) -> Result<AttentionHeads<T>> {
    if call.optional(1).is_some() || call.optional(2).is_some() {
        let [q, k, v] = [(0, heads), (1, kv_heads), (2, kv_heads)]
            .map(|(place, heads)| with_heads(call.array::<T>(place)?, Some(heads)));
        return Ok(AttentionHeads { q: q?, k: k?, v: v? });
    }
    // Packed in one input: heads of queries, then those of keys, then those of values.
    let all = with_heads(call.array::<T>(0)?, Some(heads + 2 * kv_heads))?;
    let [batch, _, length, size] = [all.shape[0], all.shape[1], all.shape[2], all.shape[3]];
    let part = |first: usize, count: usize| -> Result<Array<T>> {
        let mut y = Array::<T>::zeros(vec![batch, count, length, size])?;
        let run = count * length * size;
        for (n, y) in y.data.chunks_mut(run.max(1)).enumerate() {
            let from = (n * (heads + 2 * kv_heads) + first) * length * size;
            y.copy_from_slice(&all.data[from..from + run]);
        }
        Ok(y)
    };
    Ok(AttentionHeads { q: part(0, heads)?, k: part(heads, kv_heads)?, v: part(heads + kv_heads, kv_heads)? })
}

/// How scores become weights.
struct Weighing<T> {
    /// Scores are squeezed to `softcap · tanh(score / softcap)`; 0 leaves them.
    softcap: T,
    /// Keys that a query sees: itself and those before it; 0 if all.
    window: usize,
    /// Whether keys behind a query are hidden.
    causal: bool,
    /// A score beside the keys whose weight counts for no value, for each head.
    sinks: Option<Vec<T>>,
    /// What is added to the scores, and its places: `[batch, heads, queries, keys]`.
    bias: Option<(Array<T>, Vec<usize>)>,
}

impl<T: Real> Weighing<T> {
    /// From the attributes and inputs; `shape` is that of the scores, `[batch, heads, queries, keys]`.
    ///
    /// # Errors
    /// If sinks are not one for each head, a bias does not broadcast, or a window is asked for without causality.
    fn read(call: &Call<'_>, shape: [usize; 4]) -> Result<Weighing<T>> {
        let causal = call.flag("causal", true)?;
        let window = call.int_or("local_window_size", -1)?;
        let window = usize::try_from(window).unwrap_or(0);
        if window > 0 && !causal {
            return Err(Error::invalid("attribute `local_window_size`: a window is for causal attention"));
        }
        let sinks = match call.optional_array::<T>(11)? {
            Some(sinks) if sinks.data.len() == shape[1] => Some(sinks.data),
            Some(sinks) => {
                return Err(Error::invalid(format!("sinks {:?} for {} heads", sinks.shape, shape[1])));
            }
            // `smooth_softmax` is a sink of score 0: `exp(x) / (1 + Σ exp(x))`.
            None => call.flag("smooth_softmax", false)?.then(|| vec![T::zero(); shape[1]]),
        };
        let bias = match call.optional_array::<T>(10)? {
            None => None,
            Some(bias) => {
                crate::array::volume(&shape)?;
                let places = StridedWalk::new(&shape, &broadcast_strides(&bias.shape, &shape)?).collect();
                Some((bias, places))
            }
        };
        Ok(Weighing { softcap: T::nearest(call.float_or("softcap", 0.0)?), window, causal, sinks, bias })
    }

    /// Replaces the scores of query `at`, counted from the first token, by weights; `row` numbers the rows of a bias.
    fn weigh(&self, scores: &mut [T], head: usize, at: usize, row: usize, keys: usize) {
        for (key, score) in scores.iter_mut().enumerate() {
            if self.softcap > T::zero() {
                *score = (*score / self.softcap).tanh() * self.softcap;
            }
            if let Some((bias, places)) = &self.bias {
                *score += bias.data[places[row * keys + key]];
            }
            // The query itself is always seen.
            let hidden = self.causal && (key > at || self.window > 0 && key + self.window <= at);
            *score = if hidden { T::neg_infinity() } else { *score };
        }
        // A sink takes part in the maximum and in the sum, but has no value.
        let sink = self.sinks.as_ref().map(|sinks| sinks[head]);
        let most = scores.iter().copied().chain(sink).fold(T::neg_infinity(), T::max);
        scores.iter_mut().for_each(|score| *score = (*score - most).exp());
        let sum = scores.iter().copied().chain(sink.map(|sink| (sink - most).exp())).sum::<T>();
        scores.iter_mut().for_each(|score| *score = *score / sum);
    }
}

/// Refuses what is not served by name.
///
/// # Errors
/// Of kind `Unsupported` for quantized caches and norms of queries and keys.
fn check(call: &Call<'_>) -> Result<()> {
    let unserved = |what: &str| Err(Error::unsupported(format!("{what} is not served")));
    for (place, what) in [
        (12, "`k_scale`"),
        (13, "`v_scale`"),
        (14, "`q_norm_weight`"),
        (15, "`k_norm_weight`"),
        (16, "`query_seqlens`"),
    ] {
        if call.optional(place).is_some() {
            return unserved(&format!("the input {what}"));
        }
    }
    // They have no effect without the inputs and attributes that are refused here.
    call.ignore(&["qk_norm_epsilon", "q_norm_epsilon", "k_norm_epsilon", "kv_cache_bit_width"]);
    for name in ["k_quant_type", "v_quant_type"] {
        if !matches!(call.text_or(name, "NONE")?, "NONE" | "") {
            return unserved("a quantized cache");
        }
    }
    for name in ["sliding_window_cache", "qk_output"] {
        if call.int_or(name, 0)? != 0 {
            return unserved(&format!("the attribute `{name}`"));
        }
    }
    Ok(())
}

/// `GroupQueryAttention`, with present keys and values as further outputs: zeros behind the last token, as ONNX Runtime has them
/// in buffers that are not those of the past.
///
/// # Errors
/// If heads, caches and lengths do not fit each other, or something is not served.
pub fn group_query_attention<T: Real>(call: &Call<'_>) -> Outputs {
    check(call)?;
    let needed = |name| {
        // Bounded, so that sums of heads do not overflow.
        let count = count(call, name)?.filter(|&count| count < 1 << 31);
        count.ok_or_else(|| Error::invalid(format!("attribute `{name}`: expected a positive integer")))
    };
    let mut own: AttentionHeads<T> = heads(call, needed("num_heads")?, needed("kv_num_heads")?)?;
    let [batch, heads, length, _] = [own.q.shape[0], own.q.shape[1], own.q.shape[2], own.q.shape[3]];
    if own.k.shape != own.v.shape || own.k.shape[0] != batch || own.k.shape[2] != length || length == 0 {
        let text = format!(
            "queries {:?}, keys {:?} and values {:?} do not fit",
            own.q.shape, own.k.shape, own.v.shape
        );
        return Err(Error::invalid(text));
    }
    let past = [call.optional_array::<T>(3)?, call.optional_array::<T>(4)?];
    for past in past.iter().flatten() {
        if past.rank() != 4 || [0, 1, 3].iter().any(|&axis| past.shape[axis] != own.k.shape[axis]) {
            return Err(Error::invalid(format!(
                "{:?} cached, and {:?} of this step",
                past.shape, own.k.shape
            )));
        }
    }
    // An absent cache is empty; only tokens that both caches hold count.
    let cached = past.iter().map(|past| past.as_ref().map_or(0, |past| past.shape[2])).min().unwrap_or(0);
    let step = TokenPlaces::read(call, batch, length, cached)?;
    let interleaved = call.flag("rotary_interleaved", false)?;
    if call.flag("do_rotary", false)? {
        let angles = Angles::<T>::read(call, 7, 8, interleaved)?;
        let positions = call.optional_integers(9)?;
        if positions.as_ref().is_some_and(|list| list.len() != batch * length) {
            return Err(Error::invalid(format!("input 9: expected {batch} times {length} positions")));
        }
        let row = |n: usize, at: usize| {
            positions.as_ref().map_or((step.past[n] + at) as i64, |list| list[n * length + at])
        };
        angles.turn(&mut own.q, row)?;
        angles.turn(&mut own.k, row)?;
    }
    let weighing = Weighing::<T>::read(call, [batch, heads, length, step.keys])?;
    let (k, v) = (step.present(past[0].as_ref(), &own.k)?, step.present(past[1].as_ref(), &own.v)?);
    let all = AttentionHeads { q: own.q, k, v };
    let y = all.attend(call.float_or("scale", 0.0)?, |[n, head, at], scores| {
        // Rows of the cache behind the last token of this sequence hold nothing.
        let (seen, open) = scores.split_at_mut(step.total[n]);
        open.fill(T::zero());
        weighing.weigh(seen, head, step.past[n] + at, (n * heads + head) * length + at, step.keys);
        Ok(())
    })?;
    let dtype = call.dtype(0)?;
    let store = |x: Array<T>| call.store(x, dtype).map(Some);
    Ok(vec![store(y)?, store(all.k)?, store(all.v)?])
}

/// The longer of the sums over a head and over the keys.
pub fn grouped_terms(sizes: &InputSizes<'_>) -> CallFacts {
    let count = |name| usize::try_from(sizes.int(name, 1)).unwrap_or(1).max(1);
    let packed = if sizes.has(1) { 0 } else { 2 * count("kv_num_heads") };
    let keys = sizes.size(0, 1) + if sizes.has(3) { sizes.size(3, 2) } else { 0 };
    terms((sizes.size(0, -1) / (count("num_heads").saturating_add(packed))).max(keys))
}
