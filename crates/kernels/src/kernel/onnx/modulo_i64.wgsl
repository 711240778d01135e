// What is left of a divided by b, with the sign of b, or that of a if FMOD; a zero divisor has no result.
override FMOD: u32;

fn formula(a: val, b: val) -> val {
    if (b.x | b.y) == 0u {
        return vec2<u32>();
    }
    let size = divided64(magnitude64(a), magnitude64(b)).zw;
    let rest = select(size, difference64(vec2<u32>(), size), negative64(a));
    let moved = FMOD == 0u && (size.x | size.y) != 0u && negative64(a) != negative64(b);
    return select(rest, sum64(rest, b), moved);
}
