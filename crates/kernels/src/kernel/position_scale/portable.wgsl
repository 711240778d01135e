// y = f(t) * x for row i, whose position t is given, or p + i.
override K: u32; // row length
override FORM: u32; // 0: 1 + FACTOR ln(1 + (position + SHIFT) / FLOOR), 1: max(1, FACTOR ln(position + 1))
override FACTOR: f32;
override FLOOR: u32 = 1u;
override SHIFT: u32 = 0u;
override GIVEN: u32 = 0u; // whether positions are given

@group(0) @binding(0) var<storage, read> x: array<act>;
@group(0) @binding(1) var<storage, read> positions: array<u32>; // not read unless GIVEN
@group(0) @binding(2) var<storage, read_write> y: array<act>;
@group(0) @binding(3) var<uniform> symbols: Symbols;

fn factor(position: u32) -> f32 {
    if FORM == 0u {
        return fma(FACTOR, ln_accurate(1.0 + f32((position + SHIFT) / FLOOR)), 1.0);
    }
    return max(1.0, FACTOR * ln_accurate(f32(position + 1u)));
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let count = row_count(symbols) * K;
    for (var i = 0u; i < 4u; i++) {
        let e = group.x * 1024u + i * 256u + lane;
        if e < count {
            var position = symbols.p + e / K;
            if GIVEN != 0u {
                position = positions[e / K];
            }
            y[e] = to_act(factor(position) * f32(x[e]));
        }
    }
}
