// What is not a number, told by its bits: compilers of WGSL may take it that there is none.
fn is_nan(v: f32) -> bool {
    return (bitcast<u32>(v) & 0x7fffffffu) > 0x7f800000u;
}

fn larger(a: f32, b: f32) -> f32 {
    return select(select(select(b, a, a > b), b, is_nan(b)), a, is_nan(a));
}

fn smaller(a: f32, b: f32) -> f32 {
    return select(select(select(b, a, a < b), b, is_nan(b)), a, is_nan(a));
}

// The larger of those that are numbers.
fn larger_number(a: f32, b: f32) -> f32 {
    return select(select(select(b, a, a > b), a, is_nan(b)), b, is_nan(a));
}

