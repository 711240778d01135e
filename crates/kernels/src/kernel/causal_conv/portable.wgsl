// y[t] = b + the sum over i of w[i] z[t + i], channel by channel; z is the state, TAPS - 1 rows, with x below it.
override K: u32; // row length
override TAPS: u32;
override HAS_BIAS: u32 = 0u;
override B_DTYPE: u32 = 0u; // as W_DTYPE

@group(0) @binding(0) var<storage, read> x: array<act>;
@group(0) @binding(1) var<storage, read> w: array<u32>;
@group(0) @binding(2) var<storage, read> state: array<f32>;
@group(0) @binding(3) var<storage, read> b: array<u32>; // not read unless HAS_BIAS
@group(0) @binding(4) var<storage, read_write> y: array<act>;
@group(0) @binding(5) var<uniform> symbols: Symbols;

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

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let count = row_count(symbols) * K;
    let held = (TAPS - 1u) * K;
    for (var i = 0u; i < 4u; i++) {
        let e = group.x * 1024u + i * 256u + lane;
        if e >= count {
            continue;
        }
        let column = e % K;
        var sum = bias(column);
        for (var tap = 0u; tap < TAPS; tap++) {
            let at = e + tap * K;
            var z: f32;
            if at < held {
                z = state[at];
            } else {
                z = f32(x[at - held]);
            }
            let at_weight = column * TAPS + tap;
            sum = fma(weight_value(w[weight_word(at_weight)], at_weight), z, sum);
        }
        y[e] = to_act(sum);
    }
}
