        for (var i = 0u; i < 8u; i++) {
            let quad = i / 4u * 8u + i % 4u;
            top = max(top, seen(wide + quad, start + 4u * (quad + side), position));
        }
    }
    let most = max(max(top.x, top.y), max(top.z, top.w));
    let highest = max(most, subgroupShuffleXor(most, 1u));
