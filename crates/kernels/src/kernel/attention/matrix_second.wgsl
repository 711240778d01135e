        let found = half_row(at, start + lane % 2u * 16u, position);
        let put = subgroup * 2u * PLANE + lane % 32u / 2u * SPAN + lane % 2u * 4u;
        for (var i = 0u; i < 4u; i++) {
            let some = vec4<f32>(found[4u * i], found[4u * i + 1u], found[4u * i + 2u], found[4u * i + 3u]);
            let raised = RAISED * exp_four(some - highest);
            let chance = select(vec4<f32>(), raised, some > vec4<f32>(LOWEST));
            // The upper 11 bits: a compiler may take a conversion to f16 and back for the number itself.
            let upper = bitcast<vec4<f32>>(bitcast<vec4<u32>>(chance) & vec4<u32>(0xffffe000u));
            chances[put + i] = vec4<f16>(upper);
            chances[put + PLANE + i] = vec4<f16>(chance - upper);
        }
        workgroupBarrier();
