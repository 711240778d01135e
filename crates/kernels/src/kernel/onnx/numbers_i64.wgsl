// Integers of two words, lower and upper, as they are stored and computed with. They wrap.
alias num = vec2<u32>;
alias val = vec2<u32>;

fn to_num(v: vec2<u32>) -> vec2<u32> {
    return v;
}

fn sum64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let low = a.x + b.x;
    return vec2<u32>(low, a.y + b.y + u32(low < a.x));
}

fn difference64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    return vec2<u32>(a.x - b.x, a.y - b.y - u32(a.x < b.x));
}

// The lower two words of a product.
fn product64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let low = (a.x & 0xffffu) * (b.x & 0xffffu);
    let middle = (a.x >> 16u) * (b.x & 0xffffu) + (low >> 16u);
    let other = (a.x & 0xffffu) * (b.x >> 16u) + (middle & 0xffffu);
    let upper = (a.x >> 16u) * (b.x >> 16u) + (middle >> 16u) + (other >> 16u);
    return vec2<u32>(a.x * b.x, upper + a.x * b.y + a.y * b.x);
}

fn negative64(a: vec2<u32>) -> bool {
    return a.y >= 0x80000000u;
}

fn magnitude64(a: vec2<u32>) -> vec2<u32> {
    return select(a, difference64(vec2<u32>(), a), negative64(a));
}

fn less64(a: vec2<u32>, b: vec2<u32>) -> bool {
    let high = bitcast<vec2<i32>>(vec2<u32>(a.y, b.y));
    return high.x < high.y || (high.x == high.y && a.x < b.x);
}

// Quotient and remainder of magnitudes, bit by bit; without a divisor all bits are set.
fn divided64(a: vec2<u32>, b: vec2<u32>) -> vec4<u32> {
    var quotient = vec2<u32>();
    var rest = vec2<u32>();
    for (var i = 64u; i > 0u; i--) {
        let bit = (i - 1u) & 31u;
        let word = select(a.x, a.y, i > 32u);
        rest = vec2<u32>((rest.x << 1u) | ((word >> bit) & 1u), (rest.y << 1u) | (rest.x >> 31u));
        if rest.y > b.y || (rest.y == b.y && rest.x >= b.x) {
            rest = difference64(rest, b);
            quotient |= select(vec2<u32>(1u << bit, 0u), vec2<u32>(0u, 1u << bit), i > 32u);
        }
    }
    return vec4<u32>(quotient, rest);
}
