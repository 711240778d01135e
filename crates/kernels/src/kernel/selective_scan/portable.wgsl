// H = exp(-exp(a_log) dt) H + dt b x, y = c H + d x, token by token. A workgroup holds 64 columns of one head's state
// in registers: lane l has a quarter of the rows, the one of number l / 64, of column l % 64, four rows in a vector.
override HEADS: u32;
override GROUPS: u32;
override HEAD_DIM: u32;
override STATE: u32; // rows of a head's state, at most 256
override A_DTYPE: u32; // 0: f32, 1: f16, 2: bf16
override D_DTYPE: u32;

@group(0) @binding(0) var<storage, read> x: array<act>;
@group(0) @binding(2) var<storage, read> a_log: array<u32>;
@group(0) @binding(3) var<storage, read> b: array<act>;
@group(0) @binding(4) var<storage, read> c: array<act>;
@group(0) @binding(5) var<storage, read> d: array<u32>;
@group(0) @binding(6) var<storage, read_write> y: array<act>;
@group(0) @binding(7) var<storage, read_write> state: array<f32>; // before, then after
@group(0) @binding(8) var<uniform> symbols: Symbols;

const COLUMNS = 64u;

// Of one token, four rows in a vector; zeros behind the last row.
var<workgroup> inward: array<vec4<f32>, 64>; // b
var<workgroup> outward: array<vec4<f32>, 64>; // c
var<workgroup> parts: array<f32, 256>;

// Element e of a weight, taken from its word.
fn stored(word: u32, e: u32, dtype: u32) -> f32 {
    let half = select(word, word >> 16u, (e & 1u) == 1u);
    let narrow = select(bitcast<f32>(half << 16u), unpack2x16float(half).x, dtype == 1u);
    return select(narrow, bitcast<f32>(word), dtype == 0u);
}

// The index of the word that holds element e of a weight.
fn word_of(e: u32, dtype: u32) -> u32 {
    return select(e >> 1u, e, dtype == 0u);
}

// The first quarter of the lanes loads b, the second one c, of the row whose group begins at `origin`.
fn load(origin: u32, lane: u32) {
    if lane >= 2u * COLUMNS {
        return;
    }
    let quad = lane % COLUMNS;
    var values = vec4<f32>();
    for (var i = 0u; i < 4u; i++) {
        let row = 4u * quad + i;
        if row >= STATE {
            break;
        }
        if lane < COLUMNS {
            values[i] = f32(b[origin + row]);
        } else {
            values[i] = f32(c[origin + row]);
        }
    }
    if lane < COLUMNS {
        inward[quad] = values;
    } else {
        outward[quad] = values;
    }
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let head = group.x;
    let column = group.y * COLUMNS + lane % COLUMNS;
    let inside = column < HEAD_DIM;
    let quads = (STATE + 15u) / 16u; // vectors of each lane
    let first_quad = lane / COLUMNS * quads;
    let start = head * STATE * HEAD_DIM + column;
    let rate = -exp_accurate(stored(a_log[word_of(head, A_DTYPE)], head, A_DTYPE));
    let skip = stored(d[word_of(head, D_DTYPE)], head, D_DTYPE);
    let text = group.z;
    let rows = row_count(symbols);
    let first_row = next_row(text, 0u, rows);
    if text == TEXTS {
        // Rows of no text.
        for (var token = first_row; token < rows; token = next_row(text, token + 1u, rows)) {
            if lane < COLUMNS && inside {
                y[(token * HEADS + head) * HEAD_DIM + column] = to_act(0.0);
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
            s[i / 4u][i % 4u] = state[before * HEADS * STATE * HEAD_DIM + start + row * HEAD_DIM];
        }
    }
    for (var token = first_row; token < rows; token = next_row(text, token + 1u, rows)) {
        load((token * GROUPS + head / (HEADS / GROUPS)) * STATE, lane);
        workgroupBarrier();
        let at = (token * HEADS + head) * HEAD_DIM + column;
        var value = 0.0;
        if inside {
            value = f32(x[at]);
        }
        let step = step_at(token * HEADS + head);
        let decay = vec4<f32>(exp_accurate(rate * step));
        let added = vec4<f32>(step * value);
        var sums = vec4<f32>();
        for (var i = 0u; i < quads; i++) {
            s[i] = fma(decay, s[i], inward[first_quad + i] * added);
            sums = fma(outward[first_quad + i], s[i], sums);
        }
        parts[lane] = (sums.x + sums.y) + (sums.z + sums.w);
        workgroupBarrier();
        if lane < COLUMNS && inside {
            let low = parts[lane] + parts[lane + COLUMNS];
            let sum = low + (parts[lane + 2u * COLUMNS] + parts[lane + 3u * COLUMNS]);
            y[at] = to_act(fma(skip, value, sum));
        }
    }
    let after = slot_after(text);
    for (var i = 0u; i < 4u * quads; i++) {
        let row = 4u * first_quad + i;
        if inside && row < STATE && after < SLOTS {
            state[after * HEADS * STATE * HEAD_DIM + start + row * HEAD_DIM] = s[i / 4u][i % 4u];
        }
    }
}
