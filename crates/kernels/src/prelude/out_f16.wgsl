// Results as they are stored, where they may differ from the inputs.
alias act_out = f16;

fn to_out(v: f32) -> act_out {
    return f16(round_to_half(v));
}

