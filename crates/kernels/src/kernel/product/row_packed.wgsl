
// Weights that are stored as words of eight numbers of 4 bits, or four of 8: 16 bytes hold 32 or 16, all of one group.
override LOAD: u32 = 32u; // elements of 16 bytes

// 16 bytes of four columns, and the words in which their scales lie, from which bit on.
struct Load { a: vec4<u32>, b: vec4<u32>, c: vec4<u32>, d: vec4<u32>, scale: vec4<u32>, shift: vec4<u32> }

fn scales_of(w: Load) -> vec4<f32> {
    let halves = w.scale >> w.shift;
    return vec4<f32>(
        unpack2x16float(halves.x).x,
        unpack2x16float(halves.y).x,
        unpack2x16float(halves.z).x,
        unpack2x16float(halves.w).x,
    );
}
