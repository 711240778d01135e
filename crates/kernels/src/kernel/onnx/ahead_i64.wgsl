fn ahead(a: val, b: val) -> bool {
    return select(less64(a, b), less64(b, a), LARGEST == 1u);
}

