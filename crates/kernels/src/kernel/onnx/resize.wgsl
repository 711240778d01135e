// y = x at other sizes. Each place of y has a place in x along every dimension that changes: its nearest neighbour counts,
// or the two around it by their distance.
override COUNT: u32; // elements of y
override RANK: u32;
override LINEAR: u32; // 0: the nearest neighbour
override NEAREST: u32; // 0: round, half down, 1: round, half up, 2: floor, 3: ceil, 4: ceil if smaller, floor if larger
override COORDINATES: u32; // 0: half pixel, 1: so, but 0 for one element, 2: align corners, 3: asymmetric
override HAS_SCALES: u32; // 0: sizes of y over those of x

@group(0) @binding(0) var<storage, read> x: array<act>;
@group(0) @binding(1) var<storage, read> scales: array<f32>; // not read unless HAS_SCALES
@group(0) @binding(2) var<storage, read> sizes: array<u32>; // of y; of x; strides of x
@group(0) @binding(3) var<storage, read_write> y: array<act>;
@group(0) @binding(4) var<uniform> symbols: Symbols;

// Where element i along dimension d lies in x.
fn place(d: u32, i: u32) -> f32 {
    let to = f32(sizes[d]);
    let size = f32(sizes[RANK + d]);
    if COORDINATES == 2u {
        return select(f32(i) * (size - 1.0) / (to - 1.0), 0.0, sizes[d] == 1u);
    }
    if COORDINATES == 1u && sizes[d] == 1u {
        return 0.0;
    }
    let shift = select(0.5, 0.0, COORDINATES == 3u);
    if HAS_SCALES == 1u {
        return (f32(i) + shift) / scales[d] - shift;
    }
    return (f32(i) + shift) * size / to - shift;
}

fn nearest(d: u32, at: f32) -> f32 {
    switch NEAREST {
        case 0u: { return ceil(at - 0.5); }
        case 1u: { return floor(at + 0.5); }
        case 2u: { return floor(at); }
        case 3u: { return ceil(at); }
        default: { return select(floor(at), ceil(at), sizes[d] < sizes[RANK + d]); }
    }
}

fn within(d: u32, at: f32) -> u32 {
    return u32(clamp(at, 0.0, f32(sizes[RANK + d] - 1u)));
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    for (var i = 0u; i < 4u; i++) {
        let e = group.x * 1024u + i * 256u + lane;
        if e >= COUNT {
            return;
        }
        var corners = 1u;
        if LINEAR == 1u {
            corners = 1u << RANK;
        }
        var sum = 0.0;
        for (var corner = 0u; corner < corners; corner++) {
            var weight = 1.0;
            var origin = 0u;
            var rest = e;
            for (var d = RANK; d > 0u; d--) {
                let own = d - 1u;
                let index = rest % sizes[own];
                rest /= sizes[own];
                let upper = (corner >> own) & 1u;
                var at = index;
                if sizes[own] == sizes[RANK + own] && (HAS_SCALES == 0u || scales[own] == 1.0) {
                    weight *= f32(1u - upper);
                } else {
                    let spot = place(own, index);
                    if LINEAR == 1u {
                        let share = spot - floor(spot);
                        weight *= select(1.0 - share, share, upper == 1u);
                        at = within(own, floor(spot) + f32(upper));
                    } else {
                        at = within(own, nearest(own, spot));
                    }
                }
                origin += at * sizes[2u * RANK + own];
            }
            if weight != 0.0 {
                sum = fma(weight, f32(x[origin]), sum);
            }
        }
        y[e] = to_act(sum);
    }
}
