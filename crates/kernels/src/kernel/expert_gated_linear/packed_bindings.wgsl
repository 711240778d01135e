@group(0) @binding(0) var<storage, read> x: array<act>;
@group(0) @binding(1) var<storage, read> gate: array<u32>;
@group(0) @binding(2) var<storage, read> gate_scale: array<u32>;
@group(0) @binding(3) var<storage, read> up: array<u32>;
@group(0) @binding(4) var<storage, read> up_scale: array<u32>;
@group(0) @binding(5) var<storage, read> experts: array<u32>;
@group(0) @binding(6) var<storage, read_write> y: array<act>;
@group(0) @binding(7) var<uniform> symbols: Symbols;

fn gate_zeros(group: vec4<u32>) -> vec4<f32> {
    return packed_middle();
}

fn up_zeros(group: vec4<u32>) -> vec4<f32> {
    return packed_middle();
}
