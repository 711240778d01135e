// Keys and values lie in pages, which a row of `pages` names for each text. Query `row` belongs to text `texts[row]`.
override PAGE: u32; // positions in one page
override TEXTS: u32; // rows of `pages`
override BLOCKS: u32; // pages of a text

@group(0) @binding(0) var<storage, read> q: array<act>;
@group(0) @binding(1) var<storage, read> k: array<act>;
@group(0) @binding(2) var<storage, read> v: array<act>;
@group(0) @binding(3) var<storage, read> positions: array<u32>;
@group(0) @binding(4) var<storage, read> texts: array<u32>;
@group(0) @binding(5) var<storage, read> pages: array<u32>;
@group(0) @binding(6) var<storage, read> extra: array<u32>; // sinks or slopes, not read unless there are any
@group(0) @binding(7) var<storage, read_write> y: array<act>;
@group(0) @binding(8) var<uniform> symbols: Symbols;

// The rows of the keys that the lanes treat.
var<workgroup> places: array<u32, 64>;

// The position of a query in its text.
fn position_of(row: u32) -> u32 {
    return positions[row];
}

// How many keys a query may see without a mask: none if it belongs to no text.
fn key_count(row: u32) -> u32 {
    return select(0u, BLOCKS * PAGE, texts[row] < TEXTS);
}

// The row of a key, which lane `lane` treats.
fn key_row(row: u32, lane: u32, key: u32) -> u32 {
    let place = pages[texts[row] * BLOCKS + key / PAGE] * PAGE + key % PAGE;
    places[lane] = place;
    return place;
}

// The rows of four keys from `first + j` on, none behind `last`.
fn value_rows(first: u32, j: u32, last: u32) -> vec4<u32> {
    let at = min(vec4<u32>(j) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(last - first));
    return vec4<u32>(places[at.x], places[at.y], places[at.z], places[at.w]);
}

fn sink_of(head: u32) -> f32 {
    return weight_value(extra[weight_word(head)], head);
}

fn slope_of(head: u32) -> f32 {
    return bitcast<f32>(extra[head]);
}
