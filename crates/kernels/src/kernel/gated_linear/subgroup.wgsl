// y = silu(x * transposed gate) * (x * transposed up), element by element of both products.
@group(0) @binding(0) var<storage, read> x: array<vec4<act>>;
@group(0) @binding(1) var<storage, read> gate: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> up: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read_write> y: array<act>;
@group(0) @binding(4) var<uniform> symbols: Symbols;

fn w_read(octet: u32, column: u32, at: u32) -> vec4<u32> {
    let begin = w_row(octet, column) * (K / PIECE) + at;
    if column < 4u {
        return gate[begin];
    }
    return up[begin];
}
