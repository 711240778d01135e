@group(0) @binding(0) var<storage, read> x: array<act>;
@group(0) @binding(1) var<storage, read> w: array<u32>;
@group(0) @binding(2) var<storage, read> scale: array<u32>;
@group(0) @binding(3) var<storage, read> zero: array<u32>; // not read unless ZEROS
@group(0) @binding(4) var<storage, read> b: array<u32>; // not read unless HAS_BIAS
@group(0) @binding(5) var<storage, read_write> y: array<act_out>;
@group(0) @binding(6) var<uniform> symbols: Symbols;
