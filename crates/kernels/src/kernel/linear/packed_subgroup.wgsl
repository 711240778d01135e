// y = x * transposed w (+ b), w unpacked as it is read. Column c of octet i is output 8i + c.
override HAS_BIAS: u32 = 0u;
override B_DTYPE: u32 = 0u; // 0: f32, 1: f16, 2: bf16

@group(0) @binding(0) var<storage, read> x: array<vec4<act>>;
@group(0) @binding(1) var<storage, read> w: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> scale: array<u32>;
@group(0) @binding(3) var<storage, read> zero: array<u32>; // not read unless ZEROS
@group(0) @binding(4) var<storage, read> b: array<u32>; // not read unless HAS_BIAS
@group(0) @binding(5) var<storage, read_write> y: array<act_out>;
@group(0) @binding(6) var<uniform> symbols: Symbols;

fn w_read(octet: u32, column: u32, at: u32) -> vec4<u32> {
    return w[w_row(octet, column) * (K / LOAD) + at];
}

fn w_scale(octet: u32, column: u32, group: u32) -> f32 {
    let at = w_row(octet, column) * (K / GROUP) + group;
    return half_of(scale[at >> 1u], at);
}

fn w_zero(octet: u32, column: u32, group: u32) -> f32 {
    if ZEROS == 0u {
        return 0.0;
    }
    let at = w_row(octet, column) * (K / GROUP) + group;
    return half_of(zero[at >> 1u], at);
}
