@group(0) @binding(0) var<storage, read> ids: array<u32>;
@group(0) @binding(1) var<storage, read> w: array<u32>;
@group(0) @binding(2) var<storage, read> scale: array<u32>;
@group(0) @binding(3) var<storage, read> zero: array<u32>; // not read unless ZEROS
@group(0) @binding(4) var<storage, read_write> y: array<act_out>;
@group(0) @binding(5) var<uniform> symbols: Symbols;

// Element `at` of the table.
fn table_value(at: u32) -> f32 {
    return w_one(vec4<u32>(at)).x;
}
