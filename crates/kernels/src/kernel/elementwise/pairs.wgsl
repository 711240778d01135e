// y = formula(a, b), element by element; the formula stands at the end.
override K: u32; // row length

@group(0) @binding(0) var<storage, read> a: array<act>;
@group(0) @binding(2) var<storage, read_write> y: array<act>;
@group(0) @binding(3) var<uniform> symbols: Symbols;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let count = row_count(symbols) * K;
    for (var i = 0u; i < 4u; i++) {
        let e = group.x * 1024u + i * 256u + lane;
        if e < count {
            y[e] = to_act(formula(f32(a[e]), second(e)));
        }
    }
}

