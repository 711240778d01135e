// y = x * transposed w (+ b). Column c of octet i is output 8i + c.
override HAS_BIAS: u32 = 0u;
override B_DTYPE: u32 = 0u; // as W_DTYPE

@group(0) @binding(0) var<storage, read> x: array<vec4<act>>;
@group(0) @binding(1) var<storage, read> w: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> b: array<u32>; // not read unless HAS_BIAS
@group(0) @binding(3) var<storage, read_write> y: array<act_out>;
@group(0) @binding(4) var<uniform> symbols: Symbols;

fn w_read(octet: u32, column: u32, at: u32) -> vec4<u32> {
    return w[w_row(octet, column) * (K / PIECE) + at];
}
