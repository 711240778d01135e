// S = exp(-sigmoid(w) / sqrt(e)) S + b (a S) + k v, y = r S, token by token. A workgroup holds 64 columns (value
// channels) of one head's state in registers: lane l has a quarter of the rows (key channels), the one of number l / 64,
// of column l % 64, four rows in a vector.
override K: u32; // row length: heads * HEAD_DIM
override STATE: u32; // rows of a head's state, at most 256: here HEAD_DIM
override HEAD_DIM: u32;

@group(0) @binding(0) var<storage, read> r: array<act>;
@group(0) @binding(1) var<storage, read> w: array<act>;
@group(0) @binding(2) var<storage, read> k: array<act>;
@group(0) @binding(3) var<storage, read> v: array<act>;
@group(0) @binding(4) var<storage, read> a: array<act>;
@group(0) @binding(6) var<storage, read_write> y: array<act>;
@group(0) @binding(7) var<storage, read_write> state: array<f32>; // before, then after
@group(0) @binding(8) var<uniform> symbols: Symbols;

const COLUMNS = 64u;

// Of one token, four rows in a vector; zeros behind the last row.
var<workgroup> receptance: array<vec4<f32>, 64>;
var<workgroup> decay: array<vec4<f32>, 64>;
var<workgroup> key: array<vec4<f32>, 64>;
var<workgroup> removal: array<vec4<f32>, 64>; // a
var<workgroup> replacement: array<vec4<f32>, 64>; // b
// Sums of each lane: what the removal key finds, and the output.
var<workgroup> found: array<f32, 256>;
var<workgroup> given: array<f32, 256>;

fn decay_at(e: u32) -> f32 {
    return exp_accurate(-0.60653066 / (1.0 + exp_accurate(-f32(w[e]))));
}

// Each quarter of the lanes loads one of the vectors of the row whose head begins at `origin`, the first one two.
fn load(origin: u32, lane: u32) {
    let quad = lane % COLUMNS;
    var values = vec4<f32>();
    var others = vec4<f32>();
    for (var c = 0u; c < 4u; c++) {
        let row = 4u * quad + c;
        if row >= STATE {
            break;
        }
        switch lane / COLUMNS {
            case 0u: {
                values[c] = f32(r[origin + row]);
                others[c] = replacement_at(origin + row);
            }
            case 1u: { values[c] = f32(k[origin + row]); }
            case 2u: { values[c] = f32(a[origin + row]); }
            default: { values[c] = decay_at(origin + row); }
        }
    }
    switch lane / COLUMNS {
        case 0u: {
            receptance[quad] = values;
            replacement[quad] = others;
        }
        case 1u: { key[quad] = values; }
        case 2u: { removal[quad] = values; }
        default: { decay[quad] = values; }
    }
}

fn total(v: vec4<f32>) -> f32 {
    return (v.x + v.y) + (v.z + v.w);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let own = lane % COLUMNS;
    let column = group.y * COLUMNS + own;
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
        load(token * K + first, lane);
        workgroupBarrier();
        var sums = vec4<f32>();
        for (var i = 0u; i < quads; i++) {
            sums = fma(removal[first_quad + i], s[i], sums);
        }
        found[lane] = total(sums);
        workgroupBarrier();
        let at = token * K + first + column;
        var value = 0.0;
        if inside {
            value = f32(v[at]);
        }
        let held = (found[own] + found[own + COLUMNS]) + (found[own + 2u * COLUMNS] + found[own + 3u * COLUMNS]);
        sums = vec4<f32>();
        for (var i = 0u; i < quads; i++) {
            let quad = first_quad + i;
            let added = fma(replacement[quad], vec4<f32>(held), key[quad] * value);
            s[i] = fma(decay[quad], s[i], added);
            sums = fma(receptance[quad], s[i], sums);
        }
        given[lane] = total(sums);
        workgroupBarrier();
        if lane < COLUMNS && inside {
            let low = given[lane] + given[lane + COLUMNS];
            y[at] = to_act(low + (given[lane + 2u * COLUMNS] + given[lane + 3u * COLUMNS]));
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
