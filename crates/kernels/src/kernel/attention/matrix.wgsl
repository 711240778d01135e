// Causal attention of many rows on matrix units: workgroup (x, y) has head x of 64 rows, the last rows first, and each of
// its four subgroups 16 of them. It goes over the keys twice: for the largest score of each row, and then for the sums of
// exponentials and of values, so that no sum has to shrink on the way. While some keys are at hand, the next are under way.
override HEADS: u32;
override KV_HEADS: u32;
override SCALE: f32;
override WINDOW: u32 = 0u; // 0: no window

const ROWS = 64u;
const KEYS = 32u; // at a time, the second time; twice as many the first time
const PIECES = DIM / 8u; // of 16 bytes, in a row of a head
const STEP = DIM / 4u + 2u; // quads from a row of `stage` to the next, so that rows hit other banks
const WIDE = 2u * KEYS / 4u + 1u; // quads from a row of `scores` to the next, of twice KEYS
const NARROW = KEYS / 4u + 1u; // and of KEYS
const SPAN = 10u; // quads from a row of `chances` to the next: KEYS / 4, and two
const PLANE = 16u * SPAN;
const LOWEST = -1e30;
// Exponentials lie in f16 as this many times as much, and what is left in a second plane: small ones keep their bits.
const RAISED = 16384.0;

@group(0) @binding(0) var<storage, read> q: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> k: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> v: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read_write> y: array<act>;
@group(0) @binding(4) var<uniform> symbols: Symbols;

// First the queries, then ROWS rows of keys, then KEYS rows of keys and KEYS of values.
var<workgroup> stage: array<vec4<f16>, ROWS * STEP>;
// Of each subgroup scores, and at the end results.
var<workgroup> scores: array<vec4<f32>, 4u * 16u * WIDE>;
var<workgroup> chances: array<vec4<f16>, 8u * PLANE>;

// Where piece i of rows of a head lies that begin with row `first` of `rows`: those behind the last one are it again.
fn piece_at(first: u32, rows: u32, heads: u32, head: u32, i: u32) -> u32 {
    return (min(first + i / PIECES, rows - 1u) * heads + head) * PIECES + i % PIECES;
}

// Numbers of 16 bytes, as piece i of the rows of `stage`.
fn put_piece(i: u32, words: vec4<u32>) {
    let at = i / PIECES * STEP + i % PIECES * 2u;
    stage[at] = vec4<f16>(vec4<f32>(unpack2x16float(words.x), unpack2x16float(words.y)));
    stage[at + 1u] = vec4<f16>(vec4<f32>(unpack2x16float(words.z), unpack2x16float(words.w)));
}

// Four scores of a row with keys from `start` on; LOWEST where a key is not seen.
fn seen(at: u32, start: u32, position: u32) -> vec4<f32> {
    let key = vec4<u32>(start) + vec4<u32>(0u, 1u, 2u, 3u);
    let near = vec4<bool>(WINDOW == 0u) | (key + vec4<u32>(WINDOW) > vec4<u32>(position));
    return select(vec4<f32>(LOWEST), SCALE * scores[at], (key <= vec4<u32>(position)) & near);
}

fn exp_four(x: vec4<f32>) -> vec4<f32> {
    return vec4<f32>(exp_accurate(x.x), exp_accurate(x.y), exp_accurate(x.z), exp_accurate(x.w));
}
