// Integers of 8, 16 or 32 bits in words.
override BITS: u32 = 8u;
override SIGNED: u32 = 0u;

fn per_word() -> u32 {
    return 32u / BITS;
}

// Integer e, given the word that holds it.
fn integer_of(word: u32, e: u32) -> i32 {
    let rest = 32u - BITS;
    let up = word << (rest - e % per_word() * BITS);
    return select(bitcast<i32>(up >> rest), bitcast<i32>(up) >> rest, SIGNED == 1u);
}

// Within the integers of so many bits, less than 32.
fn saturated(v: i32) -> i32 {
    let half = i32(1u << (BITS - 1u));
    return clamp(v, select(0, -half, SIGNED == 1u), select(2 * half - 1, half - 1, SIGNED == 1u));
}

// The integer nearest to a number, moved by a zero point and saturated; what is not a number is 0.
fn rounded(v: f32, zero: i32) -> i32 {
    let within = clamp(select(v, 0.0, is_nan(v)), -131072.0, 131072.0);
    return saturated(i32(round(within)) + zero);
}

