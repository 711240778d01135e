        let found = half_row(at, start + lane % 2u * 16u, position);
        let put = subgroup * 2u * PLANE + lane % 32u / 2u * SPAN + lane % 2u * 4u;
        for (var i = 0u; i < 4u; i++) {
            let some = vec4<f32>(found[4u * i], found[4u * i + 1u], found[4u * i + 2u], found[4u * i + 3u]);
            let raised = RAISED * exp_four(some - highest);
            let chance = select(vec4<f32>(), raised, some > vec4<f32>(LOWEST));
            let nearest = vec4<f16>(chance);
            chances[put + i] = nearest;
            chances[put + PLANE + i] = vec4<f16>(chance - vec4<f32>(nearest));
        }
        workgroupBarrier();
