// y = x / (1 + exp(-x)), element by element. With e = exp(-|x|) nothing overflows: x e / (1 + e) for x < 0.
override K: u32; // row length

@group(0) @binding(0) var<storage, read> x: array<act>;
@group(0) @binding(1) var<storage, read_write> y: array<act>;
@group(0) @binding(2) var<uniform> symbols: Symbols;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let count = row_count(symbols) * K;
    for (var i = 0u; i < 4u; i++) {
        let at = group.x * 1024u + i * 256u + lane;
        if at < count {
            let v = f32(x[at]);
            let e = exp_accurate(-abs(v));
            y[at] = to_act(select(v, v * e, v < 0.0) / (1.0 + e));
        }
    }
}
