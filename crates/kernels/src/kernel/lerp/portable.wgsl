// y = a + (b - a) * t, element by element.
override K: u32; // row length

@group(0) @binding(0) var<storage, read> a: array<act>;
@group(0) @binding(1) var<storage, read> b: array<act>;
@group(0) @binding(3) var<storage, read_write> y: array<act>;
@group(0) @binding(4) var<uniform> symbols: Symbols;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let count = row_count(symbols) * K;
    for (var i = 0u; i < 4u; i++) {
        let e = group.x * 1024u + i * 256u + lane;
        if e < count {
            let start = f32(a[e]);
            y[e] = to_act(fma(f32(b[e]) - start, share(e), start));
        }
    }
}

