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
