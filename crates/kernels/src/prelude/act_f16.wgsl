// Activations as they are stored.
alias act = f16;

fn to_act(v: f32) -> act {
    return f16(round_to_half(v));
}

