// Key j lies in row j of k and v, and the queries of a causal attention stand at the end of the keys.
// There are KEYS_N * n + KEYS_P * p + KEYS_C keys.
override KEYS_N: u32;
override KEYS_P: u32;
override KEYS_C: u32;

@group(0) @binding(0) var<storage, read> q: array<act>;
@group(0) @binding(1) var<storage, read> k: array<act>;
@group(0) @binding(2) var<storage, read> v: array<act>;
@group(0) @binding(3) var<storage, read> sinks: array<u32>; // not read unless HAS_SINKS
@group(0) @binding(4) var<storage, read_write> y: array<act>;
@group(0) @binding(5) var<storage, read> slopes: array<f32>; // not read unless HAS_ALIBI
@group(0) @binding(6) var<uniform> symbols: Symbols;


// The position of a query.
fn position_of(row: u32) -> u32 {
    return symbols.p + row;
}

// How many keys a query may see without a mask.
fn key_count(row: u32) -> u32 {
    return KEYS_N * symbols.n + KEYS_P * symbols.p + KEYS_C;
}

// The row of a key, which lane `lane` treats.
fn key_row(row: u32, lane: u32, key: u32) -> u32 {
    return key;
}

// The rows of four keys from `first + j` on, none behind `last`.
fn value_rows(first: u32, j: u32, last: u32) -> vec4<u32> {
    return min(vec4<u32>(first + j) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(last));
}

fn sink_of(head: u32) -> f32 {
    return weight_value(sinks[weight_word(head)], head);
}

fn slope_of(head: u32) -> f32 {
    return slopes[head];
}
