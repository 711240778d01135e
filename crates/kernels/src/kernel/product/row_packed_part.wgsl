
// 16 bytes `at` of four rows of weight 0.
fn load0(rows: vec4<u32>, at: u32) -> Load {
    let begin = rows * vec4<u32>(K / LOAD) + vec4<u32>(at);
    let group = rows * vec4<u32>(K / GROUP) + vec4<u32>(at * LOAD / GROUP);
    var load = Load();
    load.a = w0[begin.x];
    load.b = w0[begin.y];
    load.c = w0[begin.z];
    load.d = w0[begin.w];
    load.scale.x = half_of(scale0[group.x >> 1u], group.x);
    load.scale.y = half_of(scale0[group.y >> 1u], group.y);
    load.scale.z = half_of(scale0[group.z >> 1u], group.z);
    load.scale.w = half_of(scale0[group.w >> 1u], group.w);
    return load;
}

// The lane's share of a part of a quad of weight 0.
fn partial0(quad: u32, part: u32, within: u32, size: u32) -> vec4<f32> {
    let rows = rows_of(quad, O0);
    let share = (K / LOAD + SPLIT - 1u) / SPLIT;
    let end = min((part + 1u) * share, K / LOAD);
    var at = part * share + within;
    var sum = vec4<f32>();
    if at >= end {
        return sum;
    }
    var next = load0(rows, at);
    while at < end {
        let now = next;
        let here = at;
        at += size;
        if at < end {
            next = load0(rows, at);
        }
        sum = fma(now.scale, products(now, here), sum);
    }
    return sum;
}
