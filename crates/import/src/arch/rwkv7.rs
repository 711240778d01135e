//! RWKV-7 (Goose): a recurrence whose state learns by the delta rule: each token takes out of the state what it finds under
//! its key, in part, and puts its own value there. Names as in flash-linear-attention.
//!
//! All vectors and thin matrices are parts of the layer's module. The first layer's values flow through all
//! others, which mix them into their own.

use super::{Architecture, Decoder};
use crate::block::activation::ActivationOp;
use crate::block::decoder::ModelFrame;
use crate::block::norm::Norm;
use crate::block::rwkv::{UNBOUNDED, previous_rows, low_rank, mix_rows, norm_heads, project, stateful, vector};
use crate::block::sizes::Sizes;
use crate::config::Section;
use crate::net::{Net, Path};
use tapml_graph::op::{Add, Lerp, Mul, ReluSquared, RmsNorm, Scale, Sigmoid, Tanh, Wkv7, WkvBonus};
use tapml_graph::{Result, ValueId};

/// Peng et al., "RWKV-7 'Goose' with Expressive Dynamic State Evolution", 2025, section 4.
pub const RWKV7: Architecture = Architecture { model_types: &["rwkv7"], build };

/// Below this length a removal key is not made longer.
const SHORTEST: f32 = 1e-12;

/// `config.json`, with the defaults of flash-linear-attention for absent keys.
struct Config {
    /// Heads are those of the recurrence.
    sizes: Sizes,
    /// That of all layers; heads have one of their own.
    norm: Norm,
    /// Whether the embedding is normalised before the first layer.
    norm_first: bool,
    /// Epsilon of the norm over each head.
    head_eps: f32,
    /// Columns between the two thin matrices of decay, learning rate, value mix and gate.
    ranks: [u32; 4],
}

impl Config {
    /// # Errors
    /// If sizes contradict each other or something is asked for that is not served.
    fn read(json: &Section) -> Result<Config> {
        let hidden = json.size_or("hidden_size", 2048, 1..=1 << 17)?;
        let head_dim = match (json.get("head_dim"), json.get("num_heads")) {
            (None, Some(_)) => hidden / json.size("num_heads", 1..=hidden)?,
            _ => json.size_or("head_dim", 64, 1..=1 << 12)?,
        };
        if head_dim == 0 || !hidden.is_multiple_of(head_dim) {
            return Err(json.expected_error("hidden_size", &format!("a multiple of `head_dim`, which is {head_dim}")));
        }
        unsupported(json, hidden)?;
        let ratio = json.number_or("hidden_ratio", 4.0, 1e-3..=1e3)?;
        // Rounded up to a multiple of 32, as in the reference.
        let inner = (f64::from(hidden) * ratio).min(f64::from(1 << 20)) as u32;
        let rank = |key: &str, default| json.size_or(key, default, 1..=1 << 14);
        let ranks = [
            rank("decay_low_rank_dim", 64)?,
            rank("a_low_rank_dim", 64)?,
            rank("v_low_rank_dim", 16)?,
            rank("gate_low_rank_dim", 128)?,
        ];
        let norm = Norm::layer(json, "norm_eps", 1e-5)?;
        let norm = if json.flag_or("norm_bias", true)? { norm } else { norm.without_bias() };
        let head_eps = json.number_or("norm_eps", 1e-5, 0.0..=1.0)? * f64::from(head_dim);
        let sizes = Sizes {
            vocab: json.size_or("vocab_size", 32000, 1..=1 << 24)?,
            hidden,
            intermediate: json.size_or("intermediate_size", inner.next_multiple_of(32), 1..=1 << 20)?,
            layers: json.size_or("num_hidden_layers", 24, 1..=1 << 12)?,
            heads: hidden / head_dim,
            kv_heads: hidden / head_dim,
            head_dim,
            context: json.size_or("max_position_embeddings", UNBOUNDED, 1..=1 << 26)?,
        };
        let norm_first = json.flag_or("norm_first", true)?;
        Ok(Config { sizes, norm, norm_first, head_eps: head_eps as f32, ranks })
    }
}

/// Fails on what the configuration may ask for and is not served: attention layers, values of another width, another
/// activation.
fn unsupported(json: &Section, hidden: u32) -> Result<()> {
    if json.get("attn").is_some() {
        return Err(json.unsupported("attn", "layers of attention among those of RWKV-7 are not supported"));
    }
    let widths = json.get("value_dim").map(|v| v.as_array().map_or(std::slice::from_ref(v), Vec::as_slice));
    if widths.is_some_and(|widths| widths.iter().any(|w| w.as_u64() != Some(u64::from(hidden)))) {
        let text = format!("values of another width than `hidden_size`, {hidden}, are not supported");
        return Err(json.unsupported("value_dim", &text));
    }
    match json.text_or("hidden_act", "sqrelu")? {
        "sqrelu" => Ok(()),
        other => {
            let text = format!("activation `{other}` is not supported for this architecture");
            Err(json.unsupported("hidden_act", &text).with_hint("supported: sqrelu"))
        }
    }
}

/// Time mixing and channel mixing, each behind a norm and added to the stream.
fn build(json: &Section<'_>, net: Net<'_>) -> Result<Decoder> {
    let config = Config::read(json)?;
    let (norm, width) = (&config.norm, config.sizes.hidden);
    let names = ["model.embeddings", "model.layers", "model.norm", "lm_head"];
    // The values of the first layer, which all others mix into theirs.
    let mut first = None;
    ModelFrame::with_names(json, norm, false, names)?.build(net, &config.sizes, |net, at, index, x| {
        let x = if index == 0 && config.norm_first { norm.apply(net, &at.child("pre_norm"), x, width)? } else { x };
        let y = norm.apply(net, &at.child("attn_norm"), x, width)?;
        let y = attention(&config, net, &at.child("attn"), y, &mut first)?;
        let x = net.node(&at.child("add_attn"), Add {}, &[x, y])?;
        let y = norm.apply(net, &at.child("ffn_norm"), x, width)?;
        let y = channels(&config, net, &at.child("ffn"), y)?;
        net.node(&at.child("add_ffn"), Add {}, &[x, y])
    })
}

/// Time mixing of `x: [n, width]`; `first` are the values of the first layer once it is built.
fn attention(
    config: &Config,
    net: &mut Net,
    at: &Path,
    x: ValueId,
    first: &mut Option<ValueId>,
) -> Result<ValueId> {
    let Sizes { hidden: width, head_dim, .. } = config.sizes;
    let [decay_rank, rate_rank, value_rank, gate_rank] = config.ranks;
    let last = previous_rows(net, at, x, width)?;
    let mut mix = |name: &str| mix_rows(net, &at.child(name), [x, last], width);
    let (xr, xw, xk) = (mix("x_r")?, mix("x_w")?, mix("x_k")?);
    let (xv, xa, xg) = (mix("x_v")?, mix("x_a")?, mix("x_g")?);

    let r = project(net, &at.child("r_proj"), xr, [width, width])?;
    let tanh = ActivationOp::from_op(Tanh {});
    let w = low_rank(net, &at.child("w_lora"), xw, [width, decay_rank], Some(&tanh), true)?;
    let k = project(net, &at.child("k_proj"), xk, [width, width])?;
    let mut v = project(net, &at.child("v_proj"), xv, [width, width])?;
    match *first {
        None => *first = Some(v),
        Some(first) => {
            let share = low_rank(net, &at.child("v_lora"), xv, [width, value_rank], None, true)?;
            let share = net.node(&at.child("v_lora.act"), Sigmoid {}, &[share])?;
            v = net.node(&at.child("v_mixed"), Lerp {}, &[v, first, share])?;
        }
    }
    let rate = low_rank(net, &at.child("a_lora"), xa, [width, rate_rank], None, true)?;
    let rate = net.node(&at.child("a_lora.act"), Sigmoid {}, &[rate])?;
    let sigmoid = ActivationOp::from_op(Sigmoid {});
    let gate = low_rank(net, &at.child("g_lora"), xg, [width, gate_rank], Some(&sigmoid), false)?;

    let [a, b] = removal(net, at, k, rate, [width, head_dim])?;
    // k · (1 + (rate − 1) · k_a)
    let rated = net.node(&at.child("k_rated"), Mul {}, &[k, rate])?;
    let share = net.weight(&at.child("k_a"), &[width])?;
    let k = net.node(&at.child("k_replaced"), Lerp {}, &[k, rated, share])?;

    let state = net.state(&at.child("state"), &[width, head_dim])?;
    let [y, after] = stateful(net, &at.child("wkv"), Wkv7 { head_dim }, &[r, w, k, v, a, b, state])?;
    net.set_cache(state, after)?;
    let y = norm_heads(net, &at.child("g_norm"), y, [width, head_dim], config.head_eps)?;
    let u = vector(net, &at.child("r_k"), width)?;
    let bonus = net.node(&at.child("bonus"), WkvBonus { head_dim }, &[r, k, v, u])?;
    let y = net.node(&at.child("add_bonus"), Add {}, &[y, bonus])?;
    let y = net.node(&at.child("gated"), Mul {}, &[y, gate])?;
    project(net, &at.child("o_proj"), y, [width, width])
}

/// What is taken out of the state: the removal key, which is the key times `k_k`, normalised to length 1 in each head,
/// once with the opposite sign and once times the learning rate.
fn removal(
    net: &mut Net,
    at: &Path,
    k: ValueId,
    rate: ValueId,
    [width, head_dim]: [u32; 2],
) -> Result<[ValueId; 2]> {
    let scale = net.weight(&at.child("k_k"), &[width])?;
    let key = net.node(&at.child("k_removed"), Mul {}, &[k, scale])?;
    // Divided by the root of the mean square; the length is the root of the sum.
    let root = (head_dim as f32).sqrt();
    let norm = RmsNorm { eps: SHORTEST * SHORTEST / head_dim as f32, ..RmsNorm::default() };
    let norm = RmsNorm { group: Some(head_dim), ..norm };
    let key = net.node(&at.child("k_normed"), norm, &[key])?;
    let negative = net.node(&at.child("a"), Scale { factor: -1.0 / root }, &[key])?;
    let positive = net.node(&at.child("k_unit"), Scale { factor: 1.0 / root }, &[key])?;
    Ok([negative, net.node(&at.child("b"), Mul {}, &[positive, rate])?])
}

/// Channel mixing of `x: [n, width]`: `value(relu(key(mixed x))²)`.
fn channels(config: &Config, net: &mut Net, at: &Path, x: ValueId) -> Result<ValueId> {
    let Sizes { hidden: width, intermediate: inner, .. } = config.sizes;
    let last = previous_rows(net, at, x, width)?;
    let k = mix_rows(net, &at.child("x_k"), [x, last], width)?;
    let k = project(net, &at.child("key"), k, [width, inner])?;
    let k = net.node(&at.child("key.act"), ReluSquared {}, &[k])?;
    project(net, &at.child("value"), k, [inner, width])
}
