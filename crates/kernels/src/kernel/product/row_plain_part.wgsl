
// 16 bytes `at` of four rows of a weight.
fn load0(rows: vec4<u32>, at: u32) -> Load {
    let begin = rows * vec4<u32>(K / 8u) + vec4<u32>(at);
    return Load(w0[begin.x], w0[begin.y], w0[begin.z], w0[begin.w]);
}

// The lane's share of a part of a quad of that weight, two loads at a time while the next two are under way.
fn partial0(quad: u32, part: u32, within: u32, size: u32) -> vec4<f32> {
    let rows = rows_of(quad, O0);
    let share = (K / 8u + SPLIT - 1u) / SPLIT;
    let end = min((part + 1u) * share, K / 8u);
    var at = part * share + within;
    var sums = Sums();
    if at >= end {
        return vec4<f32>();
    }
    var next = load0(rows, at);
    var after = load0(rows, min(at + size, end - 1u));
    while at < end {
        let now = next;
        let then = after;
        let here = at;
        at += 2u * size;
        if at < end {
            next = load0(rows, at);
            after = load0(rows, min(at + size, end - 1u));
        }
        sums = add_load(sums, now, here);
        if here + size < end {
            sums = add_load(sums, then, here + size);
        }
    }
    let ones = vec4<f32>(1.0);
    return vec4<f32>(dot(sums.a, ones), dot(sums.b, ones), dot(sums.c, ones), dot(sums.d, ones));
}
