override LEFT: u32;

fn formula(a: val, b: val) -> val {
    if b.y != 0u || b.x >= 64u {
        return vec2<u32>();
    }
    let by = b.x & 31u;
    // Two shifts, as a shift by 32 would be none.
    let over = vec2<u32>((a.x >> 1u) >> (31u - by), (a.y << 1u) << (31u - by));
    if LEFT == 1u {
        return select(vec2<u32>(a.x << by, (a.y << by) | over.x), vec2<u32>(0u, a.x << by), b.x >= 32u);
    }
    return select(vec2<u32>((a.x >> by) | over.y, a.y >> by), vec2<u32>(a.y >> by, 0u), b.x >= 32u);
}
