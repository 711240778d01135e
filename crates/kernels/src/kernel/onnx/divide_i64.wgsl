// Towards zero; a zero divisor has no result.
fn formula(a: val, b: val) -> val {
    let found = divided64(magnitude64(a), magnitude64(b)).xy;
    let signed = select(found, difference64(vec2<u32>(), found), negative64(a) != negative64(b));
    return select(signed, vec2<u32>(), (b.x | b.y) == 0u);
}
