// y = r (S + u k v), S = exp(-exp(w)) S + k v, token by token. A workgroup holds 64 columns (value channels) of one
// head's state in registers: lane l has a quarter of the rows (key channels), the one of number l / 64, of column l % 64,
// four rows in a vector.
override K: u32; // row length of r, k, v and y: heads * HEAD_DIM
override STATE: u32; // rows of a head's state, at most 256: here HEAD_DIM
override HEAD_DIM: u32;
override W_STRIDE: u32; // from the decays of one token to those of the next; 0: the same for all

@group(0) @binding(0) var<storage, read> r: array<act>;
@group(0) @binding(1) var<storage, read> k: array<act>;
@group(0) @binding(2) var<storage, read> v: array<act>;
@group(0) @binding(3) var<storage, read> w: array<u32>;
@group(0) @binding(5) var<storage, read_write> y: array<act>;
@group(0) @binding(6) var<storage, read_write> state: array<f32>; // before, then after
@group(0) @binding(7) var<uniform> symbols: Symbols;

const COLUMNS = 64u;

// Of one token, four rows in a vector; zeros behind the last row.
var<workgroup> receptance: array<vec4<f32>, 64>;
var<workgroup> key: array<vec4<f32>, 64>;
var<workgroup> bonus: array<vec4<f32>, 64>; // u k
var<workgroup> decay: array<vec4<f32>, 64>;
var<workgroup> parts: array<f32, 256>;

fn decay_at(e: u32) -> f32 {
    return exp_accurate(-exp_accurate(weight_value(w[weight_word(e)], e)));
}

// Each quarter of the lanes loads one of the four vectors of row `token`, whose head begins at `first`.
fn load(token: u32, first: u32, lane: u32) {
    let quad = lane % COLUMNS;
    let origin = token * K + first;
    var values = vec4<f32>();
    for (var c = 0u; c < 4u; c++) {
        let row = 4u * quad + c;
        if row >= STATE {
            break;
        }
        switch lane / COLUMNS {
            case 0u: { values[c] = f32(r[origin + row]); }
            case 1u: { values[c] = f32(k[origin + row]); }
            case 2u: { values[c] = bonus_at(first + row) * f32(k[origin + row]); }
            default: { values[c] = decay_at(token * W_STRIDE + first + row); }
        }
    }
    switch lane / COLUMNS {
        case 0u: { receptance[quad] = values; }
        case 1u: { key[quad] = values; }
        case 2u: { bonus[quad] = values; }
        default: { decay[quad] = values; }
    }
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let column = group.y * COLUMNS + lane % COLUMNS;
    let inside = column < HEAD_DIM;
    let quads = (STATE + 15u) / 16u; // vectors of each lane
    let first_quad = lane / COLUMNS * quads;
    let first = group.x * HEAD_DIM;
    let start = group.x * STATE * HEAD_DIM + column;
    let text = group.z;
    let rows = row_count(symbols);
    let first_row = next_row(text, 0u, rows);
    if text == TEXTS {
        // Rows of no text.
        for (var token = first_row; token < rows; token = next_row(text, token + 1u, rows)) {
            if lane < COLUMNS && inside {
                y[token * K + first + column] = to_act(0.0);
            }
        }
        return;
    }
    if first_row >= rows {
        return;
    }
    let before = slot_before(text);
    var s: array<vec4<f32>, 16>;
    for (var i = 0u; i < 4u * quads; i++) {
        let row = 4u * first_quad + i;
        if inside && row < STATE && before < SLOTS {
            s[i / 4u][i % 4u] = state[before * K * STATE + start + row * HEAD_DIM];
        }
    }
    for (var token = first_row; token < rows; token = next_row(text, token + 1u, rows)) {
        load(token, first, lane);
        workgroupBarrier();
        let at = token * K + first + column;
        var value = 0.0;
        if inside {
            value = f32(v[at]);
        }
        var sums = vec4<f32>();
        for (var i = 0u; i < quads; i++) {
            let quad = first_quad + i;
            sums = fma(receptance[quad], fma(bonus[quad], vec4<f32>(value), s[i]), sums);
            s[i] = fma(decay[quad], s[i], key[quad] * value);
        }
        parts[lane] = (sums.x + sums.y) + (sums.z + sums.w);
        workgroupBarrier();
        if lane < COLUMNS && inside {
            let low = parts[lane] + parts[lane + COLUMNS];
            y[at] = to_act(low + (parts[lane + 2u * COLUMNS] + parts[lane + 3u * COLUMNS]));
        }
    }
    let after = slot_after(text);
    for (var i = 0u; i < 4u * quads; i++) {
        let row = 4u * first_quad + i;
        if inside && row < STATE && after < SLOTS {
            state[after * K * STATE + start + row * HEAD_DIM] = s[i / 4u][i % 4u];
        }
    }
}
