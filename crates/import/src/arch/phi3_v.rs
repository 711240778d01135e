//! Phi-3-vision and Phi-3.5-vision: Phi-3 that sees an image in crops through a CLIP tower, with four neighbouring patches
//! merged in one row.

use super::{Architecture, Decoder, phi3};
use crate::block::decoder::ModelFrame;
use crate::block::linear::{Projection, linear};
use crate::block::vision::Tower;
use crate::config::Section;
use crate::image::{ImageTokens, Layout};
use crate::net::{Net, Path};
use crate::source::Source;
use tapml_graph::op::{Append, Gelu, GeluForm, MergeSquares};
use tapml_graph::{Result, ValueId};

/// Abdin et al., "Phi-3 Technical Report", 2024, section 7.1; crops and merging after Dong et al.,
/// "InternLM-XComposer2-4KHD", 2024, section 3. Details are those of the authors' `image_embedding_phi3_v.py`.
///
/// All crops that an image may have are in the graph, as in the authors' code, and do not see each other. All their rows
/// are projected, and so are the separators: where a row stands in the prompt is up to the prompt (see [`Layout::Crops`]),
/// so that no shape depends on the image.
pub const PHI3_V: Architecture = Architecture { model_types: &["phi3_v"], build };

/// The only tower of published checkpoints, whose sizes their configurations leave out.
const CLIP: &str = "openai/clip-vit-large-patch14-336";
/// Its sizes.
const CLIP_SIZES: &[(&str, u32)] = &[
    ("hidden_size", 1024),
    ("intermediate_size", 4096),
    ("num_hidden_layers", 24),
    ("num_attention_heads", 16),
    ("image_size", 336),
    ("patch_size", 14),
];
/// Parts of an image where the configuration does not say.
const PARTS: u32 = 16;
/// Most pixels of all crops; published checkpoints have two millions.
const MOST_PIXELS: u64 = 1 << 26;
/// The token `<|image|>` of published checkpoints.
const IMAGE: u32 = 32044;

fn build(json: &Section<'_>, mut net: Net<'_>) -> Result<Decoder> {
    let section = |key| json.section(key)?.ok_or_else(|| json.expected_error(key, "an object"));
    expect_crops(&section("embd_layer")?)?;
    let processor = section("img_processor")?;
    let tower = tower(&processor)?;
    let parts = json.size_or("num_crops", PARTS, 1..=64)?;
    // All crops are one input of the graph, whose size this bounds.
    if u64::from(parts + 1) * u64::from(tower.image()).pow(2) > MOST_PIXELS {
        return Err(json.expected_error("num_crops", &format!("parts of at most {MOST_PIXELS} pixels in all")));
    }
    let at = Path::new("model.vision_embed_tokens");
    let x = features(&processor, &mut net, &at, &tower, parts + 1)?;
    let hidden = json.size("hidden_size", 1..=1 << 17)?;
    let x = project(&mut net, &at.child("img_projection"), x, [4 * tower.hidden(), hidden])?;
    net.show(x);
    // The table of tokens is stored once, under either of its two names.
    let shared = at.child("wte");
    let shared = Some(shared).filter(|at| {
        !net.holds("model.embed_tokens.weight") && net.holds(&at.child("weight").to_string())
    });
    let decoder = phi3::decoder(json, net, |frame| match shared {
        Some(embedding) => ModelFrame { embedding, ..frame },
        None => frame,
    })?;
    let id = if decoder.vocab > IMAGE { json.size_or("image_token_id", IMAGE, 0..=decoder.vocab - 1)? } else { json.size("image_token_id", 0..=decoder.vocab - 1)? };
    let layout = Layout::Crops { most: parts + 1, pixels: tower.image(), side: tower.side() / 2 };
    Ok(Decoder { image: Some(ImageTokens { id, layout }), ..decoder })
}

/// Fails on another arrangement of crops than the published one.
fn expect_crops(json: &Section) -> Result<()> {
    for key in ["use_hd_transform", "with_learnable_separator"] {
        if !json.flag_or(key, false)? {
            return Err(json.unsupported(key, "images that are not cut in crops are not supported"));
        }
    }
    for (key, default, wanted) in
        [("hd_transform_order", "glb_sub", "sub_glb"), ("projection_cls", "linear", "mlp")]
    {
        let found = json.text_or(key, default)?;
        if found != wanted {
            return Err(json.unsupported(key, &format!("`{found}` is not supported, `{wanted}` is")));
        }
    }
    Ok(())
}

/// The tower with the sizes that its configuration leaves out. Its class token is dropped by the merge.
fn tower(json: &Section) -> Result<Tower> {
    let name = json.text("model_name")?;
    if name != CLIP {
        return Err(json.unsupported("model_name", &format!("the tower `{name}` is not supported, `{CLIP}` is")));
    }
    let tower = Tower::read(&json.with_defaults(CLIP_SIZES).root(), "name")?;
    if json.size("image_dim_out", 1..=1 << 14)? != tower.hidden() {
        return Err(json.expected_error("image_dim_out", &format!("{}, the tower's size", tower.hidden())));
    }
    if tower.lead() == 1 && tower.side().is_multiple_of(2) { Ok(tower) } else { Err(json.unsupported("name", "a tower without class token or with an odd number of patches")) }
}

/// What is projected: the patches of all crops merged two by two, then the row that ends a line and the one between parts
/// and whole: `[crops·(side/2)² + 2, 4·hidden]`.
fn features(json: &Section, net: &mut Net, at: &Path, tower: &Tower, crops: u32) -> Result<ValueId> {
    let kind = json.text_or("type_feature", "patch")?;
    if kind != "patch" {
        return Err(json.unsupported("type_feature", &format!("`{kind}` is not supported, `patch` is")));
    }
    let states = i64::from(tower.layers()) + 1;
    let index = json.get("layer_idx").map_or(Some(-2), serde_json::Value::as_i64);
    let index = index.map(|i| if i < 0 { i + states } else { i }).filter(|i| (0..states).contains(i));
    let layers = index.ok_or_else(|| json.expected_error("layer_idx", "the number of a hidden state"))? as u32;
    let states = tower.apply(net, &at.child("img_processor.vision_model"), crops, layers)?;
    let side = tower.side();
    let merge = MergeSquares { down: side, across: side, side: 2, lead: tower.lead() };
    let mut x = net.node(&at.child("merge"), merge, &[states[layers as usize]])?;
    let dtype = net.activation();
    for name in ["sub_GN", "glb_GN"] {
        let row = at.child(name);
        let source = Source::Converted(row.to_string(), dtype);
        let row = net.derive(&row.child("row"), &[1, 4 * tower.hidden()], source)?;
        // Separators become rows like any other, so that the projector treats them alike.
        x = net.node(&at.child(format!("append_{name}")), Append {}, &[x, row])?;
    }
    Ok(x)
}

/// Two layers: `x: [rows, columns]` to `[rows, hidden]`.
fn project(net: &mut Net, at: &Path, x: ValueId, [columns, hidden]: [u32; 2]) -> Result<ValueId> {
    let x = linear(net, &at.child(0), x, Projection::new(columns, hidden, true))?;
    let x = net.node(&at.child(1), Gelu { approximate: GeluForm::None }, &[x])?;
    linear(net, &at.child(2), x, Projection::new(hidden, hidden, true))
}

#[cfg(test)]
mod tests {
    use crate::checkpoint::build;
    use crate::config::Config;
    use crate::options::ImportOptions;
    use serde_json::{Value, json};
    use std::path::Path;
    use tapml_graph::DType;

    /// The small checkpoint's configuration, with the value at this path replaced.
    fn config(path: &str, value: Value) -> Config {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/goldens/phi3_v_tiny/config.json");
        let mut json: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        *json.pointer_mut(path).unwrap() = value;
        Config::parse(&file, json.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn other_arrangements_of_an_image_are_refused() {
        for (path, value, expected) in [
            ("/embd_layer/use_hd_transform", json!(false), "not cut in crops"),
            ("/embd_layer/hd_transform_order", json!("glb_sub"), "`glb_sub` is not supported"),
            ("/embd_layer/projection_cls", json!("linear"), "`linear` is not supported"),
            ("/embd_layer", json!("image"), "an object"),
            ("/img_processor/model_name", json!("other"), "the tower `other`"),
            ("/img_processor/name", json!("siglip_vision_model"), "class token"),
            ("/img_processor/patch_size", json!(4), "odd number of patches"),
            ("/img_processor/image_dim_out", json!(33), "the tower's size"),
            ("/img_processor/image_size", json!(3584), "num_crops"),
            ("/num_crops", json!(0), "from 1 to 64"),
            ("/image_token_id", json!(99), "from 0 to 98"),
        ] {
            let wrong = build(&config(path, value), &|_| Some(DType::F32), &ImportOptions::default());
            let error = wrong.unwrap_err().to_string();
            assert!(error.contains(expected), "{path}: {error}");
        }
    }

    #[test]
    fn the_table_of_tokens_may_have_its_other_name() {
        let first = "model.embed_tokens.weight";
        let config = config("/num_crops", json!(3));
        let dtype_of = |name: &str| (name != first).then_some(DType::F32);
        let (decoder, _) = build(&config, &dtype_of, &ImportOptions::default()).unwrap();
        let names: Vec<&str> = decoder.graph.weights().map(|(_, value)| value.name.as_str()).collect();
        assert!(names.contains(&"model.vision_embed_tokens.wte.weight") && !names.contains(&first));
    }
}
