        let put = subgroup * 2u * PLANE + lane % 32u / 2u * SPAN + side;
        var sum = vec4<f32>();
        for (var i = 0u; i < 4u; i++) {
            let some = seen(narrow + i, start + 4u * (i + side), position);
            let raised = RAISED * exp_four(some - highest);
            let chance = select(vec4<f32>(), raised, some > vec4<f32>(LOWEST));
            sum += chance;
            // The upper 11 bits: a compiler may take a conversion to f16 and back for the number itself.
            let upper = bitcast<vec4<f32>>(bitcast<vec4<u32>>(chance) & vec4<u32>(0xffffe000u));
            chances[put + i] = vec4<f16>(upper);
            chances[put + PLANE + i] = vec4<f16>(chance - upper);
        }
        total += (sum.x + sum.y) + (sum.z + sum.w);
        workgroupBarrier();
