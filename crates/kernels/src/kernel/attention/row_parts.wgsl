
// Sums are left as they are, for a launch that brings the parts together.
@group(0) @binding(6) var<storage, read_write> parts: array<f32>; // HEAD_DIM sums, the largest score, the sum
@group(0) @binding(7) var<uniform> symbols: Symbols;

fn give(block: u32, part: u32, count: u32, lane: u32, subgroups: u32) {
    for (var i = lane; i < BLOCK * HEAD_DIM / 4u; i += LANES) {
        let all = all_of(i, subgroups);
        let head = block * BLOCK + i / (HEAD_DIM / 4u);
        let start = (head * PARTS + part) * (HEAD_DIM + 2u);
        let d = i % (HEAD_DIM / 4u) * 4u;
        parts[start + d] = all.sums.x;
        parts[start + d + 1u] = all.sums.y;
        parts[start + d + 2u] = all.sums.z;
        parts[start + d + 3u] = all.sums.w;
        if d == 0u {
            parts[start + HEAD_DIM] = all.peak;
            parts[start + HEAD_DIM + 1u] = all.total;
        }
    }
}

// Parts without keys weigh nothing.
fn nothing(block: u32, part: u32, lane: u32) {
    if lane < BLOCK {
        let at = ((block * BLOCK + lane) * PARTS + part) * (HEAD_DIM + 2u) + HEAD_DIM;
        parts[at] = LOWEST;
        parts[at + 1u] = 0.0;
    }
}
