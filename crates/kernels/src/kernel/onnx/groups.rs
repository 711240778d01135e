//! Attention of ONNX Runtime: with groups of heads, with several heads, and of one product:
//! <https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md>.
//!
//! They differ in how heads lie in the inputs, in masks, and in how cached keys and values are given. Heads are moved
//! to where the kernel of attention takes them, and one launch attends.

use super::attention::{
    Bias, HeadsBuffer, HeadsMove, Mask, ReadPlace, ReadyAttention, Steps, append_cached, cache_output,
    cached_rows, check, heads, result, scale, strides_of,
};
use super::heads::{HeadRotation, HeadRows, Past};
use super::{OnnxNode, count, matrix, whole};
use crate::kernel::Request;
use crate::plan::{Arg, NodePlan};
use tapml_graph::{DType, Error, Result};

/// Queries, keys and values of `GroupQueryAttention`: of an input each, or of one for all.
///
/// One input for all has the heads of queries first, then those of keys and of values.
fn grouped_sides<'a>(node: &OnnxNode<'a>, q_heads: u32, kv_heads: u32) -> Result<[HeadsBuffer<'a>; 3]> {
    if node.input(0)?.sizes()?.len() != 3 || q_heads == 0 || kv_heads == 0 {
        return Err(Error::invalid(format!("{q_heads} and {kv_heads} heads of {}", node.input(0)?.ty)));
    }
    if node.optional(1).is_some() || node.optional(2).is_some() {
        return Ok([
            HeadsBuffer::from_input(node, 0, q_heads)?,
            HeadsBuffer::from_input(node, 1, kv_heads)?,
            HeadsBuffer::from_input(node, 2, kv_heads)?,
        ]);
    }
    // Numbers of heads come from the file: their sum may overflow.
    let sum = kv_heads.checked_mul(2).and_then(|both| both.checked_add(q_heads));
    let all = HeadsBuffer::from_input(node, 0, sum.ok_or_else(|| node.unserved_error("so many heads"))?)?;
    Ok([all.part(0, q_heads), all.part(q_heads, kv_heads), all.part(q_heads + kv_heads, kv_heads)])
}

/// The angles of `GroupQueryAttention`, if it turns queries and keys.
fn grouped_turn<'a>(node: &OnnxNode<'a>, batch: u32, q: &HeadsBuffer) -> Result<Option<HeadRotation<'a>>> {
    let interleaved = node.int("rotary_interleaved", 0)? != 0;
    if node.int("do_rotary", 0)? == 0 {
        return Ok(None);
    }
    let turn = HeadRotation::from_inputs(node, [7, 8], q.size, interleaved)?;
    let listed = node.may_take(9, DType::I64, &[batch, q.length])?;
    // Without a list, positions count from the number of cached rows, which the kernel learns as it runs.
    Ok(Some(HeadRotation { listed, positions: if listed.is_some() { 1 } else { 3 }, ..turn }))
}

/// Attributes of `GroupQueryAttention` that are read, or refused by their values.
const GROUPED: [&str; 16] = [
    "num_heads",
    "kv_num_heads",
    "scale",
    "softcap",
    "do_rotary",
    "rotary_interleaved",
    "local_window_size",
    "smooth_softmax",
    "causal",
    "qk_output",
    "sliding_window_cache",
    "k_quant_type",
    "v_quant_type",
    "kv_cache_bit_width",
    "qk_norm_epsilon",
    "q_norm_epsilon",
];

/// Refuses what is not served by name.
/// Attributes of quantisation do not matter while the types of the caches are `NONE`.
fn check_grouped(node: &OnnxNode) -> Result<()> {
    node.reads(&[&GROUPED[..], &["k_norm_epsilon"]].concat())?;
    // Zero is the default, which asks for nothing.
    for name in ["qk_output", "sliding_window_cache"] {
        if node.int(name, 0)? != 0 {
            return Err(node.unserved_error(&format!("the attribute `{name}`")));
        }
    }
    let plain = |name: &str| Ok::<_, Error>(matches!(node.text(name, "NONE")?, "NONE" | ""));
    if !plain("k_quant_type")?
        || !plain("v_quant_type")?
        || (12..17).any(|place| node.optional(place).is_some())
    {
        return Err(node.unserved_error("quantized caches, normalised heads, or padded queries"));
    }
    Ok(())
}

/// `GroupQueryAttention`.
pub fn plan_grouped(request: &Request) -> Result<NodePlan> {
    let node = OnnxNode::from_request(request)?;
    check_grouped(&node)?;
    let dtype = node.float_dtype()?;
    let [q, k, v] = grouped_sides(&node, heads(&node, "num_heads")?, heads(&node, "kv_num_heads")?)?;
    let batch = node.input(0)?.sizes()?[0];
    check(&node, batch, &q, &k, &v)?;
    if k.length != q.length || k.size != v.size {
        return Err(Error::invalid(format!("{} queries and {} keys of a step", q.length, k.length)));
    }
    // Exporters give one of a batch a dimension of its own.
    let lengths = Some(node.input(5)?);
    if lengths.is_some_and(|given| given.dtype() != DType::I32 || given.count().ok() != Some(batch)) {
        return Err(Error::invalid(format!("`seqlens_k` of {}, for a batch of {batch}", node.input(5)?.ty)));
    }
    let past = [cached_rows(&node, 3, batch, &k)?, cached_rows(&node, 4, batch, &v)?];
    if past[0].room != past[1].room {
        return Err(Error::invalid(format!("{} cached keys and {} values", past[0].room, past[1].room)));
    }
    // How many tokens there are in all is told as the kernels run; the outputs say what there is room for.
    let declared = (1..3).find_map(|place| node.outputs.get(place).copied().flatten());
    let room = match declared {
        Some(present) => present.sizes()?.get(2).copied().unwrap_or(0),
        None => past[0].room.saturating_add(k.length),
    };
    if room < past[0].room || room < k.length {
        return Err(Error::invalid(format!("room for {room} keys, {} cached ones", past[0].room)));
    }
    // Cached rows end where the new ones have room behind them.
    // The lengths count the new rows too, less one.
    let before = past.map(|past| Past { lengths, ..past });
    let turn = grouped_turn(&node, batch, &q)?;
    let mut steps = Steps::new(dtype, batch);
    let query = match turn {
        Some(_) => steps.move_heads(q, None, HeadsMove { turn, past: before[0], ..HeadsMove::default() })?,
        None => q,
    };
    let kept_k = cache_output(&node, 1, batch, &k, room)?;
    let how = HeadsMove { room: Some(room), past: before[0], turn, added: None };
    let mut key = steps.move_heads(k, kept_k, how)?;
    // One launch writes the output of the cache in f16, the other scratch in f32.
    if turn.is_some() && dtype == DType::F16 && kept_k.is_some() {
        // The cache rounds what is turned; attention takes it as it was.
        key = steps.move_heads(k, None, how)?;
    }
    let kept_v = cache_output(&node, 2, batch, &v, room)?;
    let v = steps.move_heads(v, kept_v, HeadsMove { past: before[1], turn: None, ..how })?;
    // A bias may have fewer columns than there is room for: keys behind them are left out. One column stretches.
    let mut keys = room;
    let bias = match node.optional(10) {
        None => None,
        Some(given) => {
            let own = given.sizes()?.last().copied().unwrap_or(1);
            keys = if own == 1 { keys } else { keys.min(own) };
            node.takes(10, dtype, &given.sizes()?)?;
            Some(Bias { given, strides: strides_of(&given, [batch, q.heads, q.length, keys])? })
        }
    };
    // A score of 0 beside the keys: the denominator has one more term of e^0.
    let smooth = if node.int("smooth_softmax", 0)? != 0 { 2 } else { 0 };
    let sinks = node.may_take(11, dtype, &[q.heads])?;
    let attend = ReadyAttention {
        q: query,
        k: key,
        v,
        y: result(&node, batch, &q, v.size)?,
        keys,
        ahead: 0,
        lengths: lengths.map(|lengths| (lengths, 1)),
        scale: scale(&node, q.size)?,
        softcap: node.float("softcap", 0.0)?.max(0.0),
        causal: node.int("causal", 1)? != 0,
        // -1 means no window; so does any other negative number here.
        window: u32::try_from(node.int("local_window_size", -1)?).unwrap_or(0),
        bias,
        mask: None,
        sinks: if sinks.is_some() { (1, sinks) } else { (smooth, None) },
    };
    steps.plan(&attend, 0)
}

/// The mask and the bias of ONNX Runtime's attentions, at these places of inputs.
fn masks<'a>(
    node: &OnnxNode<'a>,
    places: [usize; 2],
    to: [u32; 4],
) -> Result<(Option<Mask<'a>>, Option<Bias<'a>>)> {
    let [batch, _, queries, keys] = to;
    let filter = node.float("mask_filter_value", -10000.0)?;
    let mask = match node.optional(places[0]) {
        None => None,
        Some(given) => {
            // One length for each; ends, then starts; numbers for keys; or numbers for queries and keys.
            let (kind, strides) = match *given.sizes()?.as_slice() {
                [own] if own == batch => (3, [0; 4]),
                [own] if own == 2 * batch => (4, [batch, 0, 0, 0]),
                [n, k] if (n, k) == (batch, keys) => (2, [keys, 0, 0, 1]),
                [n, q, k] if (n, q, k) == (batch, queries, keys) => {
                    (2, [count(&[queries, keys])?, 0, keys, 1])
                }
                _ => return Err(node.unserved_error(&format!("a mask of {}", given.ty))),
            };
            node.takes(places[0], DType::I32, &given.sizes()?)?;
            Some(Mask { given, kind, strides, filter })
        }
    };
    let bias = match node.optional(places[1]) {
        None => None,
        Some(given) => {
            node.takes(places[1], node.float_dtype()?, &given.sizes()?)?;
            Some(Bias { given, strides: strides_of(&given, to)? })
        }
    };
    Ok((mask, bias))
}

/// `MultiHeadAttention`.
pub fn plan_multi_head(request: &Request) -> Result<NodePlan> {
    let node = OnnxNode::from_request(request)?;
    node.reads(&["num_heads", "scale", "mask_filter_value", "unidirectional"])?;
    if [8, 9].iter().any(|&place| node.optional(place).is_some()) || node.outputs.len() > 3 {
        return Err(node.unserved_error("shared buffers, beams, or scores as an output"));
    }
    let (dtype, own) = (node.float_dtype()?, heads(&node, "num_heads")?);
    if node.input(0)?.sizes()?.len() != 3 {
        return Err(node.unserved_error("packed queries, keys and values"));
    }
    let [q, k, v] = [
        HeadsBuffer::from_input(&node, 0, own)?,
        HeadsBuffer::from_input(&node, 1, own)?,
        HeadsBuffer::from_input(&node, 2, own)?,
    ];
    let batch = node.input(0)?.sizes()?[0];
    check(&node, batch, &q, &k, &v)?;
    let mut steps = Steps::new(dtype, batch);
    let width = |side: &HeadsBuffer| count(&[side.heads, side.size]);
    // The bias has the columns of queries, keys and values one behind the other.
    let (first, second) = (width(&q)?, width(&q)?.saturating_add(width(&k)?));
    let all = second.saturating_add(width(&v)?);
    let mut added = [None; 3];
    if node.optional(3).is_some() {
        let bias = node.takes(3, dtype, &[all])?;
        // Keys and values that have heads already are ready.
        // Cross attention may give keys and values that were projected before.
        let ready = node.input(1)?.sizes()?.len() == 4;
        let rest = |from: u32| (!ready).then_some((bias, from));
        added = [Some((bias, 0)), rest(first), rest(second)];
    }
    let query = match added[0] {
        Some(_) => steps.move_heads(q, None, HeadsMove { added: added[0], ..HeadsMove::default() })?,
        None => q,
    };
    let ([k, v], ahead) = append_cached(&node, &mut steps, [k, v], [6, 7], [added[1], added[2]])?;
    let (mask, bias) = masks(&node, [4, 5], [batch, q.heads, q.length, k.length])?;
    let attend = ReadyAttention {
        q: query,
        k,
        v,
        y: result(&node, batch, &q, v.size)?,
        keys: k.length,
        ahead,
        lengths: None,
        scale: scale(&node, q.size)?,
        softcap: 0.0,
        causal: node.int("unidirectional", 0)? != 0,
        window: 0,
        bias,
        mask,
        sinks: (0, None),
    };
    steps.plan(&attend, 0)
}

/// Columns of queries, keys and values of a product of this width, each of which its heads share.
///
/// Queries and keys have equal sizes; without the attribute all three have.
fn hidden_sizes(node: &OnnxNode, width: u32, own: u32) -> Result<[u32; 3]> {
    let told = node.ints("qkv_hidden_sizes")?;
    let hidden: Vec<u32> = match &told {
        None => vec![width / 3; 3],
        Some(told) => told.iter().filter_map(|&size| u32::try_from(size).ok()).collect(),
    };
    let &[a, b, c] = hidden.as_slice() else {
        return Err(Error::invalid(format!("hidden sizes {told:?}, expected three")));
    };
    let fits = a == b && u64::from(a) + u64::from(b) + u64::from(c) == u64::from(width);
    if own == 0 || !fits || !a.is_multiple_of(own) || !c.is_multiple_of(own) {
        return Err(Error::invalid(format!("hidden sizes {hidden:?} of {width} columns in {own} heads")));
    }
    Ok([a, b, c])
}

/// `Attention` of ONNX Runtime: a product gives queries, keys and values.
///
/// They lie side by side in each row. The chain of additions is that of the product: a row and its bias.
pub fn plan_projected(request: &Request) -> Result<NodePlan> {
    let node = OnnxNode::from_request(request)?;
    node.reads(&["num_heads", "scale", "mask_filter_value", "unidirectional", "qkv_hidden_sizes"])?;
    if node.optional(6).is_some() {
        return Err(node.unserved_error("shared buffers"));
    }
    let (dtype, own) = (node.float_dtype()?, heads(&node, "num_heads")?);
    let (&[batch, length, inner], &[_, width]) =
        (node.input(0)?.sizes()?.as_slice(), node.input(1)?.sizes()?.as_slice())
    else {
        return Err(Error::invalid(format!("`{}` takes {}", node.op.kind(), node.input(0)?.ty)));
    };
    let w = node.takes(1, dtype, &[inner, width])?;
    let added = node.may_take(2, dtype, &[width])?;
    let [a, b, c] = hidden_sizes(&node, width, own)?;
    let mut steps = Steps::new(dtype, batch);
    let rows = count(&[batch, length])?;
    let product = ReadPlace::Scratch(steps.room(count(&[rows, width])?));
    let operands = [whole(node.input(0)?), whole(w), added.map_or(Arg::Constant(0), whole)];
    let launch =
        matrix::launch_projection(dtype, [rows, inner, width], operands, added.is_some(), |launch| {
            product.write(launch)
        })?;
    steps.launches.push(launch);
    let side = |size: u32, from: u32| {
        let rows = HeadRows::by_row(length, width, size / own, from);
        HeadsBuffer { place: product, rows, heads: own, length, size: size / own }
    };
    let [q, k, v] = [side(a, 0), side(b, a), side(c, a + b)];
    check(&node, batch, &q, &k, &v)?;
    let past = match node.optional(4) {
        None => None,
        Some(past) => {
            let room = past.sizes()?.get(3).copied().unwrap_or(0);
            Some((node.takes(4, dtype, &[2, batch, own, room, k.size])?, room))
        }
    };
    let ahead = past.map_or(0, |past| past.1);
    let room = ahead.checked_add(length).ok_or_else(|| node.unserved_error("so many keys"))?;
    let half = |room: u32| count(&[batch, own, room, k.size]);
    let to = match node.outputs.get(1).copied().flatten() {
        None => None,
        Some(_) => Some(node.gives(1, dtype, &[2, batch, own, room, k.size])?.index),
    };
    let mut sides = [k, v];
    if to.is_some() || ahead > 0 {
        if k.size != v.size {
            return Err(node.unserved_error("keys and values of several sizes that are kept"));
        }
        // The cache is one tensor: keys are its first half, values the second.
        for (at, side) in sides.iter_mut().enumerate() {
            let from = |room: u32| Ok::<_, Error>(if at == 0 { 0 } else { half(room)? });
            let cached = past.map(|past| past.0);
            let past = Past { cached, from: from(ahead)?, room: ahead, lengths: None };
            let to = to.map(|index| Ok::<_, Error>((index, from(room)?))).transpose()?;
            *side =
                steps.move_heads(*side, to, HeadsMove { room: Some(room), past, ..HeadsMove::default() })?;
        }
    }
    let (mask, bias) = masks(&node, [3, 5], [batch, own, length, room])?;
    let [k, v] = sides;
    let y = node.gives(0, dtype, &[batch, length, c])?;
    let attend = ReadyAttention {
        q,
        k,
        v,
        y: (y.index, HeadRows::by_row(length, c, v.size, 0)),
        keys: room,
        ahead,
        lengths: None,
        scale: scale(&node, q.size)?,
        softcap: 0.0,
        causal: node.int("unidirectional", 0)? != 0,
        window: 0,
        bias,
        mask,
        sinks: (0, None),
    };
    steps.plan(&attend, inner.saturating_add(1))
}
