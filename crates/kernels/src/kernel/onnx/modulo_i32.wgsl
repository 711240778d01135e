// What is left of a divided by b, with the sign of b, or that of a if FMOD; a zero divisor has no result.
override FMOD: u32;

fn formula(a: val, b: val) -> val {
    let rest = a % select(b, 1, b == 0);
    let moved = FMOD == 0u && rest != 0 && (rest < 0) != (b < 0);
    return select(rest, rest + b, moved);
}
