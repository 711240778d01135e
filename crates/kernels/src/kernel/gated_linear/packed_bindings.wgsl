@group(0) @binding(0) var<storage, read> x: array<act>;
@group(0) @binding(1) var<storage, read> gate: array<u32>;
@group(0) @binding(2) var<storage, read> gate_scale: array<u32>;
@group(0) @binding(3) var<storage, read> gate_zero: array<u32>; // not read unless ZEROS
@group(0) @binding(4) var<storage, read> up: array<u32>;
@group(0) @binding(5) var<storage, read> up_scale: array<u32>;
@group(0) @binding(6) var<storage, read> up_zero: array<u32>; // not read unless ZEROS
@group(0) @binding(7) var<storage, read_write> y: array<act>;
@group(0) @binding(8) var<uniform> symbols: Symbols;

fn gate_zeros(group: vec4<u32>) -> vec4<f32> {
    if ZEROS == 0u {
        return packed_middle();
    }
    let word = group >> vec4<u32>(1u);
    let x = gate_zero[word.x];
    let y = gate_zero[word.y];
    let z = gate_zero[word.z];
    return packed_halves(vec4<u32>(x, y, z, gate_zero[word.w]), group);
}

fn up_zeros(group: vec4<u32>) -> vec4<f32> {
    if ZEROS == 0u {
        return packed_middle();
    }
    let word = group >> vec4<u32>(1u);
    let x = up_zero[word.x];
    let y = up_zero[word.y];
    let z = up_zero[word.z];
    return packed_halves(vec4<u32>(x, y, z, up_zero[word.w]), group);
}
