// Numbers as they are stored, and as they are computed with. Integers wrap.
alias num = u32;
alias val = u32;

fn to_num(v: u32) -> u32 {
    return v;
}
