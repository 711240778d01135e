// y[i] = table[ids[i]]. A launch holds rows FIRST to FIRST + COUNT - 1 of a table of VOCAB rows and writes those y that
// it can. An id outside the whole table gives zeros.
override K: u32; // row length
override FIRST: u32 = 0u;
override COUNT: u32;
override VOCAB: u32;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let count = row_count(symbols) * K;
    for (var i = 0u; i < 4u; i++) {
        let e = group.x * 1024u + i * 256u + lane;
        if e < count {
            let id = ids[e / K];
            if id >= FIRST && id - FIRST < COUNT {
                let at = (id - FIRST) * K + e % K;
                y[e] = to_out(table_value(at));
            } else if FIRST == 0u && id >= VOCAB {
                y[e] = to_out(0.0);
            }
        }
    }
}
