// y = silu(x * transposed gate) * (x * transposed up), element by element of both products; both weights are unpacked as
// they are read.
@group(0) @binding(0) var<storage, read> x: array<vec4<act>>;
@group(0) @binding(1) var<storage, read> gate: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> gate_scale: array<u32>;
@group(0) @binding(3) var<storage, read> gate_zero: array<u32>; // not read unless ZEROS
@group(0) @binding(4) var<storage, read> up: array<vec4<u32>>;
@group(0) @binding(5) var<storage, read> up_scale: array<u32>;
@group(0) @binding(6) var<storage, read> up_zero: array<u32>; // not read unless ZEROS
@group(0) @binding(7) var<storage, read_write> y: array<act>;
@group(0) @binding(8) var<uniform> symbols: Symbols;

fn w_read(octet: u32, column: u32, at: u32) -> vec4<u32> {
    let begin = w_row(octet, column) * (K / LOAD) + at;
    if column < 4u {
        return gate[begin];
    }
    return up[begin];
}

fn w_scale(octet: u32, column: u32, group: u32) -> f32 {
    let at = w_row(octet, column) * (K / GROUP) + group;
    if column < 4u {
        return half_of(gate_scale[at >> 1u], at);
    }
    return half_of(up_scale[at >> 1u], at);
}

fn w_zero(octet: u32, column: u32, group: u32) -> f32 {
    if ZEROS == 0u {
        return 0.0;
    }
    let at = w_row(octet, column) * (K / GROUP) + group;
    if column < 4u {
        return half_of(gate_zero[at >> 1u], at);
    }
    return half_of(up_zero[at >> 1u], at);
}
