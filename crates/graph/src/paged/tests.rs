//! Paged graphs of small graphs, and what is refused.

use super::*;
use crate::ErrorKind;

const TEXT: &str = "graph g
input ids: u32[n]
weight table: f32[9,4]
weight head: f32[9,4]
state k: f32[p,4] -> keys
state v: f32[p,4] -> values
x: f32[n,4] = embedding(ids, table) {\"dtype\":\"f32\"}
keys: f32[n+p,4] = append(k, x)
values: f32[n+p,4] = append(v, x)
y: f32[n,4] = attention(x, keys, values) {\"heads\":2,\"kv_heads\":2,\"head_dim\":2,\"scale\":1.0}
logits: f32[n,9] = linear(y, head)
output logits = logits
";
const LAYOUT: PageLayout = PageLayout { page: 4, pages: 6, texts: 3, blocks: 2, wanted: None, states: 0 };

#[test]
fn caches_become_pages_and_wanted_rows_get_logits() {
    let paged = Graph::parse(TEXT).unwrap().to_paged(LAYOUT).unwrap();
    assert_eq!(Graph::parse(&paged.to_text()).unwrap(), paged);
    let text = paged.to_text();
    for line in [
        "input pages: u32[3,2]",
        "input wanted: u32[s]",
        "state k: f32[24,4] -> keys",
        "keys: f32[24,4] = paged_append(k, x, cache_slots)",
        "y: f32[n,4] = paged_attention(x, keys, values, positions, texts, pages)",
        "wanted_rows: f32[s,4] = take_rows(y, wanted)",
        "logits: f32[s,9] = linear(wanted_rows, head)",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
}

#[test]
fn what_looks_beyond_its_row_is_refused_with_its_node() {
    for (from, to, told) in [
        ("\"scale\":1.0", "\"scale\":1.0,\"causal\":false", "node `y`: `attention` sees keys"),
        ("input ids: u32[n]", "input ids: u32[n]\ninput more: f32[n]", "input `more` (f32[n])"),
    ] {
        let error = Graph::parse(&TEXT.replace(from, to)).unwrap().to_paged(LAYOUT).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains(told), "{error}");
    }
    assert_eq!(SingleText::from_graph(&Graph::parse(TEXT).unwrap()).unwrap(), None);
    let zero = PageLayout { page: 0, ..LAYOUT };
    assert!(Graph::parse(TEXT).unwrap().to_paged(zero).unwrap_err().to_string().contains("above 0"));
}

#[test]
fn a_single_text_lies_backward_in_its_pages() {
    let one = PageLayout { wanted: Some(1), ..LAYOUT };
    let paged = Graph::parse(TEXT).unwrap().to_paged(one).unwrap();
    let single = SingleText::from_graph(&paged).unwrap().unwrap();
    assert_eq!(single.context(), 8);
    let mut inputs = single.inputs(3, 3).unwrap();
    let (name, scales) = inputs.pop().unwrap();
    assert_eq!((name, scales.to_f32().to_vec()), (SCALES, vec![1.0]), "sums at a temperature of 1");
    let found: Vec<(&str, Vec<u32>)> =
        inputs.iter().map(|(name, tensor)| (*name, tensor.to_u32().unwrap())).collect();
    let expected: [(&str, &[u32]); 5] = [
        (POSITIONS, &[3, 4, 5]),
        (TEXTS, &[0, 0, 0]),
        (SLOTS, &[23, 16, 17]),
        (PAGES, &[5, 4, 0, 0, 0, 0]),
        (WANTED, &[2]),
    ];
    assert_eq!(found, expected.map(|(name, values)| (name, values.to_vec())));
    assert!(single.inputs(6, 3).unwrap_err().to_string().contains("9 tokens, and pages for 8"));
    let any = Graph::parse(TEXT).unwrap().to_paged(LAYOUT).unwrap();
    assert!(SingleText::from_graph(&any).is_err());
}

/// A recurrence beside rotary embeddings and a scale that depend on positions and lengths.
const RECURRENT: &str = "graph g
input ids: u32[n]
weight table: f32[9,4]
weight head: f32[9,4]
state before: f32[1,4] -> after
x: f32[n,4] = embedding(ids, table) {\"dtype\":\"f32\"}
shifted: f32[n,4], after: f32[1,4] = token_shift(x, before) as shift
angles: f32[n,4] = rope_angles() {\"inv_freq\":[1.0,0.1],\"scale\":1.0,\"dynamic\":{\"factor\":2.0,\"original\":6}}
y: f32[n,4] = mul(shifted, angles)
z: f32[n,4] = position_scale(y) {\"form\":{\"log_n\":{\"train\":4}}}
logits: f32[n,9] = linear(z, head)
output logits = logits
";

#[test]
fn a_state_becomes_slots_and_what_depends_on_positions_is_given_them() {
    let layout = PageLayout { wanted: Some(1), states: 5, ..LAYOUT };
    let graph = Graph::parse(RECURRENT).unwrap();
    assert_eq!((graph.is_recurrent(), graph.length_limit()), (true, Some(6)));
    let paged = graph.to_paged(layout).unwrap();
    assert_eq!(Graph::parse(&paged.to_text()).unwrap(), paged);
    let text = paged.to_text();
    for line in [
        "input state_slots: u32[3,2]",
        "input text_lengths: u32[n]",
        "state before: f32[5,4] -> after",
        "paged_recurrence(x, before, texts, state_slots)",
        "rope_angles(positions, text_lengths)",
        "position_scale(y, positions)",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    assert!(!text.contains("input pages"), "{text}");
    let none = PageLayout { states: 0, ..layout };
    assert!(graph.to_paged(none).unwrap_err().to_string().contains("above 0"));

    let single = SingleText::from_graph(&paged).unwrap().unwrap();
    let values = |position| -> Vec<Vec<u32>> {
        let inputs = single.inputs(3, position).unwrap();
        let found: Vec<&str> = inputs.iter().map(|(name, _)| *name).collect();
        assert_eq!(found, [POSITIONS, TEXTS, LENGTHS, STATES, WANTED, SCALES]);
        inputs[..5].iter().map(|(_, tensor)| tensor.to_u32().unwrap()).collect()
    };
    let none = u32::MAX;
    assert_eq!(values(0)[2..4], [vec![3; 3], vec![none, 3, none, none, none, none]]);
    assert_eq!(values(3)[2..4], [vec![6; 3], vec![3, 1, none, none, none, none]]);
}

/// Rows of an image in the places of tokens.
const SEEING: &str = "graph g
input ids: u32[n]
input pixels: f32[2,4]
input slots: u32[n]
weight table: f32[9,4]
weight head: f32[9,4]
weight gain: f32[2,4]
state k: f32[p,4] -> keys
state v: f32[p,4] -> values
own: f32[n,4] = embedding(ids, table) {\"dtype\":\"f32\"}
seen: f32[2,4] = mul(pixels, gain)
x: f32[n,4] = merge_rows(own, seen, slots)
keys: f32[n+p,4] = append(k, x)
values: f32[n+p,4] = append(v, x)
y: f32[n,4] = attention(x, keys, values) {\"heads\":2,\"kv_heads\":2,\"head_dim\":2,\"scale\":1.0}
logits: f32[n,9] = linear(y, head)
output logits = logits
";

#[test]
fn rows_of_images_are_inputs_and_their_encoder_is_a_graph_of_its_own() {
    let graph = Graph::parse(SEEING).unwrap();
    let encoder = graph.image_encoder().unwrap().unwrap();
    let expected = "graph g\ninput pixels: f32[2,4]\nweight gain: f32[2,4]\nseen: f32[2,4] = mul(pixels, gain)\noutput seen = seen\n";
    assert_eq!(encoder.to_text(), expected);
    assert_eq!(graph.image_rows().unwrap(), Some(2));
    let reader = graph.image_reader().unwrap().unwrap();
    let read = SEEING.replace("input pixels: f32[2,4]\n", "").replace("weight gain: f32[2,4]\n", "");
    // What was computed stands where its node stood.
    let read = read.replace("seen: f32[2,4] = mul(pixels, gain)\n", "input seen: f32[2,4]\n");
    assert_eq!(reader.to_text(), Graph::parse(&read).unwrap().to_text());
    assert_eq!(graph.greedy().unwrap(), None);
    let greedy = graph.greedy_reader().unwrap().unwrap().to_text();
    assert!(greedy.contains("input seen: f32[2,4]") && greedy.contains("output next_token"), "{greedy}");
    assert_eq!(Graph::parse(TEXT).unwrap().greedy_reader().unwrap(), None);
    let one = PageLayout { wanted: Some(1), ..LAYOUT };
    let paged = graph.to_paged(one).unwrap();
    let text = paged.to_text();
    for line in [
        "input image_rows: f32[n,4]",
        "input image_slots: u32[n]",
        "x: f32[n,4] = merge_rows(own, image_rows, image_slots)",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    assert!(!text.contains("pixels") && !text.contains("gain") && !text.contains(" slots"), "{text}");
    let single = SingleText::from_graph(&paged).unwrap().unwrap();
    let inputs: HashMap<&str, crate::Tensor> = single.inputs(2, 0).unwrap().into_iter().collect();
    assert_eq!(inputs[IMAGE_SLOTS].to_u32().unwrap(), [u32::MAX; 2]);
    assert_eq!(inputs[IMAGE_ROWS].shape(), [2, 4]);

    let whole = graph.to_paged_with_encoder(one).unwrap();
    let text = whole.to_text();
    for line in ["seen: f32[2,4] = mul(pixels, gain)", "merge_rows(own, seen, slots)", "paged_append(k, x"] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    assert!(!text.contains("image_"), "{text}");
}

#[test]
fn a_graph_of_texts_is_the_same_with_and_without_images_in_mind() {
    let graph = Graph::parse(TEXT).unwrap();
    let paged = graph.to_paged(LAYOUT).unwrap();
    assert_eq!(graph.to_paged_with_encoder(LAYOUT).unwrap(), paged);
    assert!(graph.image_encoder().unwrap().is_none() && !paged.to_text().contains("image"));
    // Rows that are another thing in each step have no encoder.
    let step = SEEING.replace("input pixels: f32[2,4]", "input pixels: f32[n,4]").replace(
        "seen: f32[2,4] = mul(pixels, gain)\nx: f32[n,4] = merge_rows(own, seen, slots)",
        "seen: f32[2,4] = silu(gain)\nx: f32[n,4] = merge_rows(own, pixels, slots)",
    );
    let error = Graph::parse(&step).unwrap().image_encoder().unwrap_err();
    assert!(error.to_string().contains("follow from more than pixels"), "{error}");
}

/// Keys and values that are made of one cache, row by row.
const LATENT: &str = "graph g
input ids: u32[n]
weight table: f32[9,4]
weight head: f32[9,4]
weight up: f32[10,4]
state latent: f32[p,4] -> latents
x: f32[n,4] = embedding(ids, table) {\"dtype\":\"f32\"}
latents: f32[n+p,4] = append(latent, x)
both: f32[n+p,10] = linear(latents, up)
key: f32[n+p,6] = columns(both) {\"group\":5,\"first\":0,\"count\":3}
value: f32[n+p,4] = columns(both) {\"group\":5,\"first\":3,\"count\":2}
query: f32[n,10] = linear(x, up)
q: f32[n,6] = columns(query) {\"group\":5,\"first\":0,\"count\":3}
y: f32[n,4] = attention(q, key, value) {\"heads\":2,\"kv_heads\":2,\"head_dim\":3,\"value_dim\":2,\"scale\":1.0}
logits: f32[n,9] = linear(y, head)
output logits = logits
";

#[test]
fn keys_and_values_that_are_made_of_a_cache_lie_in_pages_themselves() {
    let paged = Graph::parse(LATENT).unwrap().to_paged(LAYOUT).unwrap();
    assert_eq!(Graph::parse(&paged.to_text()).unwrap(), paged);
    let text = paged.to_text();
    for line in [
        "state key_pages: f32[24,6] -> key_cache",
        "state value_pages: f32[24,4] -> value_cache",
        "both: f32[n,10] = linear(x, up)",
        "key_cache: f32[24,6] = paged_append(key_pages, key, cache_slots)",
        "y: f32[n,4] = paged_attention(q, key_cache, value_cache, positions, texts, pages)",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    assert!(!text.contains("latent"), "{text}");
}

#[test]
fn a_cache_that_more_than_projections_read_is_refused() {
    for (from, to) in [
        // Attention reads the cache itself, too.
        ("attention(q, key, value)", "attention(q, key, latents)"),
        // Another node reads all rows of it.
        ("both:", "other: f32[n+p,9] = linear(latents, head)\nboth:"),
    ] {
        let error = Graph::parse(&LATENT.replace(from, to)).unwrap().to_paged(LAYOUT).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains("node `y`: `attention` sees keys"), "{error}");
    }
}

#[test]
fn a_window_is_the_largest_of_all_layers() {
    let with = |first: &str, second: &str| {
        let attention = "y: f32[n,4] = attention(x, keys, values) {\"heads\":2,\"kv_heads\":2,\"head_dim\":2,\"scale\":1.0}";
        let node = |name: &str, mask: &str| {
            attention.replace("y:", name).replace("\"scale\"", &format!("{mask}\"scale\""))
        };
        let both = format!("{}\n{}", node("z:", first), node("y:", second));
        let graph = Graph::parse(&TEXT.replace(attention, &both)).unwrap();
        let paged = graph.to_paged(LAYOUT).unwrap();
        (graph.attention_window(), paged.attention_window())
    };
    let (window, chunk) = ("\"window\":5,", "\"chunk\":8,");
    assert_eq!(with(window, "\"window\":3,").0, Some(5));
    assert_eq!(with(window, chunk).0, Some(8));
    assert_eq!(
        with(chunk, "\"window\":9,\"chunk\":4,"),
        (Some(8), Some(4)),
        "only what logits need is in pages"
    );
    assert_eq!(with(window, ""), (None, None));
    assert_eq!(Graph::parse(RECURRENT).unwrap().attention_window(), None);
}
