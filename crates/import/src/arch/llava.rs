//! LLaVA: a vision tower whose hidden states, projected, take the places of tokens of a language model.
//!
//! The language model is built by its own architecture, below `language_model.`. It only sees rows of the
//! image in the place of tokens (`Net::show`).

use super::{Architecture, Decoder, find};
use crate::image::{ImageTokens, Layout};
use crate::block::activation::ActivationOp;
use crate::block::linear::{Projection, linear};
use crate::block::vision::Tower;
use crate::config::{Config, Section};
use crate::net::{Net, Path};
use tapml_graph::op::{Concat, Rows};
use tapml_graph::{Result, ValueId};

/// Liu et al., "Visual Instruction Tuning", 2023, section 4.1; "Improved Baselines with Visual Instruction Tuning", 2023,
/// section 3.3 (two-layer projector).
pub const LLAVA: Architecture = Architecture { model_types: &["llava"], build };

/// The projector.
const PROJECTOR: &str = "multi_modal_projector";

/// What Transformers takes for keys that are absent from the configuration of a language model: published checkpoints
/// leave out what is as in Llama 7B or Mistral 7B.
const ABSENT: &[(&str, &[(&str, u32)])] = &[
    ("llama", &[("vocab_size", 32000), ("intermediate_size", 11008)]),
    ("mistral", &[("vocab_size", 32000), ("intermediate_size", 14336), ("num_key_value_heads", 8)]),
];
/// Likewise for both.
const ABSENT_OF_BOTH: &[(&str, u32)] =
    &[("hidden_size", 4096), ("num_hidden_layers", 32), ("num_attention_heads", 32)];

/// Tower, projector, then the language model of `text_config`.
fn build(json: &Section<'_>, mut net: Net<'_>) -> Result<Decoder> {
    let missing = |key| json.expected_error(key, "an object");
    let vision = json.section("vision_config")?.ok_or_else(|| missing("vision_config"))?;
    let text = json.section("text_config")?.ok_or_else(|| missing("text_config"))?;
    let text = language(&text)?;
    let (architecture, _) = find(&text.root())?;
    // A hostile configuration could nest itself without end.
    if architecture.model_types == LLAVA.model_types {
        return Err(text.root().unsupported("model_type", "the language model cannot be a LLaVA itself"));
    }
    let tower = Tower::read(&vision, "model_type")?;
    let (image, count) = features(json, &mut net, &tower)?;
    let hidden = text.root().size("hidden_size", 1..=1 << 17)?;
    let image = project(json, &mut net, image, hidden)?;
    net.show(image);
    let decoder = (architecture.build)(&text.root(), net.with_prefix("language_model."))?;
    // The token of LLaVA 1.5 stands behind Llama's own 32 000.
    let id = json.size_or("image_token_index", 32000, 0..=decoder.vocab - 1)?;
    Ok(Decoder { image: Some(ImageTokens { id, layout: Layout::Whole { rows: count } }), ..decoder })
}

/// The configuration of the language model with the keys that published checkpoints leave out.
fn language(text: &Section) -> Result<Config> {
    let kind = text.text("model_type")?;
    let Some((_, own)) = ABSENT.iter().find(|(name, _)| *name == kind) else { return Ok(text.with_defaults(&[])) };
    Ok(text.with_defaults(&[*own, ABSENT_OF_BOTH].concat()))
}

/// The hidden states that the projector takes, side by side, `[m, columns]`, and `m`.
fn features(json: &Section, net: &mut Net, tower: &Tower) -> Result<(ValueId, u32)> {
    let wanted = wanted_layers(json, tower)?;
    let deepest = wanted.iter().copied().max().unwrap_or_default();
    // Transformers 5 names the tower's modules directly, older files have one module more.
    let older = net.holds("vision_tower.vision_model.embeddings.patch_embedding.weight");
    let at = Path::new(if older { "vision_tower.vision_model" } else { "vision_tower" });
    let states = tower.apply(net, &at, 1, deepest as u32)?;
    let mut x = states[wanted[0]];
    for (i, &layer) in wanted.iter().enumerate().skip(1) {
        // Several hidden states stand side by side, as wider rows.
        x = net.node(&Path::new(PROJECTOR).child("join").child(i), Concat::default(), &[x, states[layer]])?;
    }
    match json.text_or("vision_feature_select_strategy", "default")? {
        "full" => Ok((x, tower.rows())),
        // The class token is no patch; the projector was trained without it.
        "default" if tower.rows() > 1 => {
            let count = tower.rows() - 1;
            Ok((net.node(&Path::new(PROJECTOR).child("patches"), Rows { first: 1, count }, &[x])?, count))
        }
        _ => Err(json.expected_error("vision_feature_select_strategy", "`default` (without the first row) or `full`")),
    }
}

/// Which hidden states of the tower the projector takes: 0 is what enters the first layer, negative numbers count from
/// the last.
fn wanted_layers(json: &Section, tower: &Tower) -> Result<Vec<usize>> {
    let key = "vision_feature_layer";
    let default = serde_json::Value::from(-2);
    let value = json.get(key).unwrap_or(&default);
    let list = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
    let states = i64::from(tower.layers()) + 1;
    let layer = |value: &serde_json::Value| {
        let number = value.as_i64().map(|n| if n < 0 { n + states } else { n })?;
        usize::try_from(number).ok().filter(|_| number < states)
    };
    let layers: Option<Vec<usize>> = list.iter().map(layer).collect();
    layers.filter(|layers| (1..=16).contains(&layers.len())).ok_or_else(|| {
        let range = format!("a number from {} to {}, or a list of at most 16", -states, states - 1);
        json.expected_error(key, &range)
    })
}

/// The projector: `x: [m, columns]` to `[m, hidden]`.
fn project(json: &Section, net: &mut Net, x: ValueId, hidden: u32) -> Result<ValueId> {
    let bias = json.flag_or("multimodal_projector_bias", true)?;
    let columns = net.ty(x).shape.get(1).and_then(|size| size.as_const()).unwrap_or(0) as u32;
    let at = Path::new(PROJECTOR);
    let x = linear(net, &at.child("linear_1"), x, Projection::new(columns, hidden, bias))?;
    let x = ActivationOp::read(json, "projector_hidden_act", "gelu")?.apply(net, &at.child("act"), x)?;
    linear(net, &at.child("linear_2"), x, Projection::new(hidden, hidden, bias))
}
