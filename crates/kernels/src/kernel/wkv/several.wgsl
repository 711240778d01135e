@group(0) @binding(4) var<storage, read> index: array<u32>;

fn bonus_at(e: u32) -> f32 {
    return behind_texts(e, row_count(symbols));
}
