// y = b + the sum over i of w[i] z[i], channel by channel; z is the last TAPS rows of the row's text up to itself, those of
// its state where the step has fewer.
override K: u32; // row length
override TAPS: u32;
override TEXTS: u32;
override SLOTS: u32;
override HAS_BIAS: u32 = 0u;
override B_DTYPE: u32 = 0u; // as W_DTYPE

@group(0) @binding(0) var<storage, read> x: array<act>;
@group(0) @binding(1) var<storage, read> w: array<u32>;
@group(0) @binding(2) var<storage, read> states: array<f32>;
@group(0) @binding(3) var<storage, read> b: array<u32>; // not read unless HAS_BIAS
@group(0) @binding(4) var<storage, read> texts: array<u32>;
@group(0) @binding(5) var<storage, read> slots: array<u32>;
@group(0) @binding(6) var<storage, read_write> y: array<act>;
@group(0) @binding(7) var<uniform> symbols: Symbols;

fn bias(at: u32) -> f32 {
    if HAS_BIAS == 0u {
        return 0.0;
    }
    if B_DTYPE == 0u {
        return bitcast<f32>(b[at]);
    }
    let half = select(b[at >> 1u], b[at >> 1u] >> 16u, (at & 1u) == 1u);
    return select(bitcast<f32>(half << 16u), unpack2x16float(half).x, B_DTYPE == 1u);
}

// Row `row` of a text's state.
fn before(text: u32, row: u32, column: u32) -> f32 {
    if slots[2u * text] >= SLOTS {
        return 0.0;
    }
    return states[(slots[2u * text] * (TAPS - 1u) + row) * K + column];
}

// The sum of one element.
fn convolved(own: u32, text: u32, column: u32) -> f32 {
    // Rows of the text before this one, as many as the taps look back, and the first of them.
    var seen = 0u;
    var row = own;
    for (var r = own; r > 0u && seen < TAPS - 1u; r--) {
        if texts[r - 1u] == text {
            row = r - 1u;
            seen++;
        }
    }
    var sum = bias(column);
    for (var tap = 0u; tap < TAPS; tap++) {
        var z: f32;
        if tap + seen < TAPS - 1u {
            z = before(text, tap + seen, column);
        } else {
            z = f32(x[row * K + column]);
            row++;
            while row < own && texts[row] != text {
                row++;
            }
        }
        let at = column * TAPS + tap;
        sum = fma(weight_value(w[weight_word(at)], at), z, sum);
    }
    return sum;
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let count = row_count(symbols) * K;
    for (var i = 0u; i < 4u; i++) {
        let e = group.x * 1024u + i * 256u + lane;
        if e >= count {
            continue;
        }
        let text = texts[e / K];
        if text < TEXTS {
            y[e] = to_act(convolved(e / K, text, e % K));
        } else {
            y[e] = to_act(0.0);
        }
    }
}
