fn ahead(a: val, b: val) -> bool {
    if is_nan(a) || is_nan(b) {
        return is_nan(a) != is_nan(b) && is_nan(a) == (NAN_FIRST == 1u);
    }
    return select(b > a, a > b, LARGEST == 1u);
}

