// Numbers as they are stored, and as they are computed with.
alias num = act;
alias val = f32;

fn to_num(v: f32) -> act {
    return to_act(v);
}
