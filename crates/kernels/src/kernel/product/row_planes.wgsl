// The row as integers, for weights of few bits. Each 32 elements share a power of two that makes integers of 24 bits of them,
// so that what is lost of an element is below 2^-23 of the largest among them, as in sums of f32. Their digits to base 256,
// between -128 and 127, meet the weights four at a time, and all sums of integers are exact.
// Of octet i, at [place(i)]: the words of the last digits, first and second, and of the digits before them.
var<workgroup> planes: array<vec4<u32>, POOL>;
// The words of the first digits, at [place_of_pair(i)].
var<workgroup> pairs: array<vec2<u32>, POOL>;
// What 32 elements are to be multiplied by in the end.
var<workgroup> factors: array<f32, POOL / 4>;

// Turned so that lanes which read four pieces apart hit all banks.
fn place_of_pair(i: u32) -> u32 {
    return i ^ ((i >> 4u) & 3u);
}

// The three digits of four elements times `scale`, each in 8 bits of a word.
fn digits(v: vec4<f32>, scale: f32) -> vec4<u32> {
    return bitcast<vec4<u32>>(vec4<i32>(round(v * scale)) + vec4<i32>(0x808080)) ^ vec4<u32>(0x808080u);
}

// The signs of infinite elements; 0 for others.
fn endless(v: vec4<f32>) -> vec4<f32> {
    let all = bitcast<vec4<u32>>(v);
    let sign = select(vec4<f32>(1.0), vec4<f32>(-1.0), (all & vec4<u32>(0x80000000u)) != vec4<u32>());
    return select(vec4<f32>(), sign, (all & vec4<u32>(0x7fffffffu)) == vec4<u32>(0x7f800000u));
}

// Brings elements 8i to 8i + 7 of the row to workgroup memory. Four neighbouring lanes of a subgroup have the octets of the
// same 32 elements, or repeat the last octet of the row.
fn put_eight(i: u32, octet: Octet) {
    var v = octet;
    let sizes = max(bitcast<vec4<u32>>(v.low) & vec4<u32>(0x7fffffffu), bitcast<vec4<u32>>(v.high) & vec4<u32>(0x7fffffffu));
    var most = max(max(sizes.x, sizes.y), max(sizes.z, sizes.w));
    most = max(most, subgroupShuffleXor(most, 1u));
    most = max(most, subgroupShuffleXor(most, 2u));
    // The scale is 2^22 over the power of two at or below the largest element, or half of it.
    let exponent = 276u - clamp(most >> 23u, 30u, 254u);
    var scale = bitcast<f32>(exponent << 23u);
    var factor = bitcast<f32>((254u - exponent) << 23u);
    if bitcast<f32>(min(most, 0x7f7fffffu)) * scale > 8355711.0 {
        scale *= 0.5;
        factor *= 2.0;
    }
    if most >= 0x7f800000u {
        v = Octet(endless(v.low), endless(v.high));
        scale = 1.0;
        factor = bitcast<f32>(most);
    }
    // Words of 4-bit numbers give the even ones of eight, then the odd ones; of 8-bit numbers there are four in a word.
    var first = digits(v.low, scale);
    var second = digits(v.high, scale);
    if BITS == 4u {
        let low = first;
        first = vec4<u32>(low.x, low.z, second.x, second.z);
        second = vec4<u32>(low.y, low.w, second.y, second.w);
    }
    if i < K / 8u {
        let middle = vec2<u32>(pack4xU8(first >> vec4<u32>(8u)), pack4xU8(second >> vec4<u32>(8u)));
        planes[place(i)] = vec4<u32>(pack4xU8(first), pack4xU8(second), middle);
        pairs[place_of_pair(i)] =
            vec2<u32>(pack4xU8(first >> vec4<u32>(16u)), pack4xU8(second >> vec4<u32>(16u)));
        if (i & 3u) == 0u {
            factors[i / 4u] = factor;
        }
    }
}

// Sums of integers with the three digits.
struct Sums { low: i32, middle: i32, high: i32 }

// A sum with the products of four numbers and four elements of the row.
fn add_four(to: Sums, numbers: u32, low: u32, middle: u32, high: u32) -> Sums {
    return Sums(
        to.low + dot4I8Packed(numbers, low),
        to.middle + dot4I8Packed(numbers, middle),
        to.high + dot4I8Packed(numbers, high),
    );
}

// A sum with the products of a word of eight numbers, 16 times what they are less the middle of their range.
fn add_word(to: Sums, word: u32, p: vec4<u32>, q: vec2<u32>) -> Sums {
    let even = ((word << 4u) & 0xf0f0f0f0u) ^ 0x80808080u;
    let odd = (word & 0xf0f0f0f0u) ^ 0x80808080u;
    return add_four(add_four(to, even, p.x, p.z, q.x), odd, p.y, p.w, q.y);
}

// A sum with the products of two words of four numbers.
fn add_pair(to: Sums, words: vec2<u32>, p: vec4<u32>, q: vec2<u32>) -> Sums {
    let numbers = words ^ vec2<u32>(0x80808080u);
    return add_four(add_four(to, numbers.x, p.x, p.z, q.x), numbers.y, p.y, p.w, q.y);
}

fn whole(sums: Sums) -> f32 {
    return fma(f32(sums.high), 65536.0, f32(sums.middle * 256 + sums.low));
}

// The products of 16 bytes of four columns with the row.
fn products(w: Load, at: u32) -> vec4<f32> {
    var a = Sums();
    var b = Sums();
    var c = Sums();
    var d = Sums();
    if BITS == 4u {
        for (var j = 0u; j < 4u; j++) {
            let p = planes[place(4u * at + j)];
            let q = pairs[place_of_pair(4u * at + j)];
            a = add_word(a, w.a[j], p, q);
            b = add_word(b, w.b[j], p, q);
            c = add_word(c, w.c[j], p, q);
            d = add_word(d, w.d[j], p, q);
        }
        return factors[at] * 0.0625 * vec4<f32>(whole(a), whole(b), whole(c), whole(d));
    }
    let p = planes[place(2u * at)];
    let q = pairs[place_of_pair(2u * at)];
    a = add_pair(a, w.a.xy, p, q);
    b = add_pair(b, w.b.xy, p, q);
    c = add_pair(c, w.c.xy, p, q);
    d = add_pair(d, w.d.xy, p, q);
    let r = planes[place(2u * at + 1u)];
    let s = pairs[place_of_pair(2u * at + 1u)];
    a = add_pair(a, w.a.zw, r, s);
    b = add_pair(b, w.b.zw, r, s);
    c = add_pair(c, w.c.zw, r, s);
    d = add_pair(d, w.d.zw, r, s);
    return factors[at / 2u] * vec4<f32>(whole(a), whole(b), whole(c), whole(d));
}
