//! Which layers see only a part of the positions before them.
//!
//! Transformers 5 lists the kind of each layer in `layer_types`; older configurations give a rule by
//! numbers. The list wins where both are there.

use crate::config::Section;
use tapml_graph::Result;

/// For each layer whether it is a local one (`sliding_attention` or `chunked_attention` in `layer_types`); `default`
/// tells it by the layer's number where the configuration does not.
pub fn local_layers(json: &Section, layers: u32, default: impl Fn(u32) -> bool) -> Result<Vec<bool>> {
    const KEY: &str = "layer_types";
    let Some(listed) = json.get(KEY) else { return Ok((0..layers).map(default).collect()) };
    let kind = |value: &serde_json::Value| match value.as_str() {
        Some("sliding_attention" | "chunked_attention") => Some(true),
        Some("full_attention") => Some(false),
        _ => None,
    };
    let kinds = listed.as_array().and_then(|list| list.iter().map(kind).collect::<Option<Vec<bool>>>());
    kinds.filter(|kinds| kinds.len() == layers as usize).ok_or_else(|| {
        let kinds = "`full_attention`, `sliding_attention` or `chunked_attention`";
        json.expected_error(KEY, &format!("{kinds} for each of {layers} layers"))
    })
}

/// The window of a family that switches windows on by `use_sliding_window` (Qwen), if it is on.
///
/// `null` is no window, an absent key is the default of 4096.
fn switched_on(json: &Section) -> Result<Option<u32>> {
    // The flag alone decides: published configurations keep a number for a window that is off.
    let used = json.flag_or("use_sliding_window", false)? && !json.is_null("sliding_window");
    used.then(|| json.size_or("sliding_window", 4096, 1..=1 << 26)).transpose()
}

/// The window of each layer of such a family: none in the first `max_window_layers` layers.
pub fn switched_windows(json: &Section, layers: u32) -> Result<Vec<Option<u32>>> {
    let window = switched_on(json)?;
    let first = json.size_or("max_window_layers", 28, 0..=1 << 20)?;
    let local = local_layers(json, layers, |index| index >= first)?;
    Ok(local.into_iter().map(|local| window.filter(|_| local)).collect())
}

/// For each layer whether the list under `key` holds `true` or 1; `default` tells it by the layer's number if the key is
/// absent. The list may be longer than there are layers.
pub fn flags(json: &Section, key: &str, layers: u32, default: impl Fn(u32) -> bool) -> Result<Vec<bool>> {
    let Some(listed) = json.get(key) else { return Ok((0..layers).map(default).collect()) };
    let flag = |value: &serde_json::Value| value.as_bool().or(value.as_u64().map(|number| number != 0));
    let list = listed.as_array().and_then(|list| list.iter().map(flag).collect::<Option<Vec<bool>>>());
    let list = list.filter(|list| list.len() >= layers as usize);
    list.ok_or_else(|| json.expected_error(key, &format!("0 or 1 for each of {layers} layers")))
}

/// The window of such a family that has it in all layers at once.
pub fn uniform_windows(json: &Section, layers: u32) -> Result<Vec<Option<u32>>> {
    Ok(vec![switched_on(json)?; layers as usize])
}
