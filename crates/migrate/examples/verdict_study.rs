//! Prints the study behind the verdict's constants: `cargo run --example verdict_study`.

#[path = "../tests/study/mod.rs"]
mod study;

fn main() {
    let rows = study::run(&tapml_testing::model("llama"));
    println!(
        "{:<10} {:<28} {:<5} {:<8} {:>10} {:>10}  decided by",
        "operator", "kernel", "store", "kind", "least", "most"
    );
    for row in &rows {
        println!(
            "{:<10} {:<28} {:<5} {:<8} {:>10.3} {:>10.3e}  {} (slope {:+.1e}){}",
            row.op,
            row.kernel,
            row.dtype.to_string(),
            if row.correct { "correct" } else { "wrong" },
            row.least,
            row.most.ratio,
            row.most.criterion.name(),
            row.most.slope,
            if row.correct == row.is_caught() { "  <--" } else { "" }
        );
    }
    let count = |correct: bool| rows.iter().filter(|r| r.correct == correct).count();
    let wrong =
        |correct: bool| rows.iter().filter(|r| r.correct == correct && r.is_caught() == correct).count();
    println!("{} false alarms of {}, {} missed of {}", wrong(true), count(true), wrong(false), count(false));
}
