        let found = half_row(at, start + lane % 2u * 16u, position);
        var peak = top;
        for (var i = 0u; i < 16u; i++) {
            peak = max(peak, found[i]);
        }
        var sum = 0.0;
        for (var i = 0u; i < 16u; i++) {
            sum += select(0.0, exp_accurate(found[i] - peak), found[i] > LOWEST);
        }
        total = total * exp_accurate(top - peak) + sum;
        top = peak;
    }
    let other = subgroupShuffleXor(top, 1u);
    let highest = max(top, other);
    total *= exp_accurate(top - highest);
    total = RAISED * (total + subgroupShuffleXor(total, 1u));
