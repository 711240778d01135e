
// 16 bytes `at` of four rows of a weight.
fn load0(rows: vec4<u32>, at: u32) -> Load {
    let begin = rows * vec4<u32>(K / LOAD) + vec4<u32>(at);
    let group = rows * vec4<u32>(K / GROUP) + vec4<u32>(at * LOAD / GROUP);
    var load = Load();
    load.a = w0[begin.x];
    load.b = w0[begin.y];
    load.c = w0[begin.z];
    load.d = w0[begin.w];
    load.scale.x = scale0[group.x >> 1u];
    load.scale.y = scale0[group.y >> 1u];
    load.scale.z = scale0[group.z >> 1u];
    load.scale.w = scale0[group.w >> 1u];
    load.shift = (group & vec4<u32>(1u)) << vec4<u32>(4u);
    return load;
}
