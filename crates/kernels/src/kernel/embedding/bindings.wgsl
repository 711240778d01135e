@group(0) @binding(0) var<storage, read> ids: array<u32>;
@group(0) @binding(1) var<storage, read> table: array<u32>;
@group(0) @binding(2) var<storage, read_write> y: array<act_out>;
@group(0) @binding(3) var<uniform> symbols: Symbols;

// Element `at` of the table.
fn table_value(at: u32) -> f32 {
    return weight_value(table[weight_word(at)], at);
}
