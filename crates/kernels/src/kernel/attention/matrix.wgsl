// Causal attention of many rows on matrix units: workgroup (x, y) has head x of 64 rows, the last rows first, and each of
// its four subgroups 16 of them. It goes over the keys twice, KEYS at a time: for the largest score and the sum of the
// exponentials of each row, and then for the sums of values, so that no sum has to shrink on the way.
override HEADS: u32;
override KV_HEADS: u32;
override SCALE: f32;
override WINDOW: u32 = 0u; // 0: no window

const ROWS = 64u;
const KEYS = 32u;
const QUADS = DIM / 4u;
const STEP = QUADS + 2u; // quads from a row of `stage` to the next, so that rows hit other banks
const SPAN = 10u; // quads from a row of `chances` to the next: KEYS / 4, and two
const PLANE = 16u * SPAN;
const LOWEST = -1e30;
// Exponentials lie in f16 as this many times as much, and what is left in a second plane: small ones keep their bits.
const RAISED = 16384.0;

@group(0) @binding(0) var<storage, read> q: array<vec4<f16>>;
@group(0) @binding(1) var<storage, read> k: array<vec4<f16>>;
@group(0) @binding(2) var<storage, read> v: array<vec4<f16>>;
@group(0) @binding(3) var<storage, read_write> y: array<act>;
@group(0) @binding(4) var<uniform> symbols: Symbols;

// First the queries, then KEYS rows of keys and KEYS of values.
var<workgroup> stage: array<vec4<f16>, ROWS * STEP>;
// Of each subgroup scores, and at the end results.
var<workgroup> scores: array<f32, 2048>;
var<workgroup> chances: array<vec4<f16>, 8u * PLANE>;

// Places of quads: KEYS rows from key `start` on, those behind the last one again.
fn load_keys(start: u32, keys: u32, kv_head: u32, lane: u32) {
    for (var i = lane; i < KEYS * QUADS / 2u; i += 128u) {
        let row = i / (QUADS / 2u);
        let at = (min(start + row, keys - 1u) * KV_HEADS + kv_head) * QUADS + i % (QUADS / 2u) * 2u;
        stage[row * STEP + i % (QUADS / 2u) * 2u] = k[at];
        stage[row * STEP + i % (QUADS / 2u) * 2u + 1u] = k[at + 1u];
    }
}

fn load_values(start: u32, keys: u32, kv_head: u32, lane: u32) {
    for (var i = lane; i < KEYS * QUADS / 2u; i += 128u) {
        let row = i / (QUADS / 2u);
        let at = (min(start + row, keys - 1u) * KV_HEADS + kv_head) * QUADS + i % (QUADS / 2u) * 2u;
        stage[(KEYS + row) * STEP + i % (QUADS / 2u) * 2u] = v[at];
        stage[(KEYS + row) * STEP + i % (QUADS / 2u) * 2u + 1u] = v[at + 1u];
    }
}

fn load_queries(first: u32, rows: u32, head: u32, lane: u32) {
    for (var i = lane; i < ROWS * QUADS / 2u; i += 128u) {
        let row = i / (QUADS / 2u);
        let at = (min(first + row, rows - 1u) * HEADS + head) * QUADS + i % (QUADS / 2u) * 2u;
        stage[row * STEP + i % (QUADS / 2u) * 2u] = q[at];
        stage[row * STEP + i % (QUADS / 2u) * 2u + 1u] = q[at + 1u];
    }
}

// Half of a row's scores with the keys at hand, which begin at `start`; LOWEST where a key is not seen.
fn half_row(at: u32, start: u32, position: u32) -> array<f32, 16> {
    var found: array<f32, 16>;
    for (var i = 0u; i < 16u; i++) {
        let key = start + i;
        let seen = key <= position && (WINDOW == 0u || key + WINDOW > position);
        found[i] = select(LOWEST, SCALE * scores[at + i], seen);
    }
    return found;
}

fn exp_four(x: vec4<f32>) -> vec4<f32> {
    return vec4<f32>(exp_accurate(x.x), exp_accurate(x.y), exp_accurate(x.z), exp_accurate(x.w));
}
