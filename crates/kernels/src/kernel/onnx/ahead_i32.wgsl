fn ahead(a: val, b: val) -> bool {
    return select(b > a, a > b, LARGEST == 1u);
}

