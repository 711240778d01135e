// Numbers as they are stored, and as they are computed with. Integers wrap.
alias num = i32;
alias val = i32;

fn to_num(v: i32) -> i32 {
    return v;
}
