    // The first of the blocks that read the same keys appends.
    if p < end && block * BLOCK % (HEADS / KV_HEADS) == 0u && team == 0u && own < count {
        k[(p * KV_HEADS + kv_head) * count + i] = fresh_key;
        v[(p * KV_HEADS + kv_head) * count + i] = fresh_value;
    }
    workgroupBarrier();
    weigh(lane, subgroups);
    give(block, part, (p + step - least) / step, lane, subgroups);
}
