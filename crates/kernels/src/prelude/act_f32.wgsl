// Activations as they are stored.
alias act = f32;

fn to_act(v: f32) -> act {
    return v;
}

