
@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    // As `row_count`; what all lanes have alike must be seen to be.
    let rows = ROWS_N * symbols.n + ROWS_P * symbols.p + ROWS_C;
    let tiles = (rows + ROWS - 1u) / ROWS;
    if group.y >= tiles {
        return;
    }
    let first = (tiles - 1u - group.y) * ROWS;
    let head = group.x;
    let kv_head = head / (HEADS / KV_HEADS);
    let keys = symbols.p + rows;
    let end = symbols.p + min(first + ROWS, rows);
    let oldest = symbols.p + first + 1u;
    let begin = select(0u, oldest - min(WINDOW, oldest), WINDOW != 0u);
    let subgroup = lane / 32u;
    let own = subgroup * 16u;
    // Two lanes share a row, and take four quads each of every eight.
    let row = first + own + lane % 32u / 2u;
    let position = symbols.p + row;
    let side = lane % 2u * 4u;
    let wide = (own + lane % 32u / 2u) * WIDE + side;
    let narrow = own * WIDE + lane % 32u / 2u * NARROW + side;
    for (var i = lane; i < ROWS * PIECES; i += 128u) {
        put_piece(i, q[piece_at(first, rows, HEADS, head, i)]);
    }
    workgroupBarrier();
    var top = vec4<f32>(LOWEST);
    var total = 0.0;
