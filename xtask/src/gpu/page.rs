//! `docs/results/gpu.md`, made from the newest file of each device in `docs/data/gpu`. Large files may be packed: `.json.gz`.

use super::DATA;
use super::numbers::{Decode, LaunchCount, Migrate, Numbers, Worst};
use super::record::{Record, Run, Status};
use crate::packed::is_measurement;
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

/// The page, from the root.
pub const PAGE: &str = "docs/results/gpu.md";

const INTRO: &str = include_str!("intro.md");

/// Says what is wrong with the page or the files it is made from.
pub fn check(root: &Path, errors: &mut Vec<String>) {
    let made = match make(root) {
        Ok(made) => made,
        Err(error) => return errors.push(format!("{error:#}")),
    };
    let stored = std::fs::read_to_string(root.join(PAGE)).unwrap_or_default();
    if stored != made {
        let same = stored.lines().zip(made.lines()).take_while(|(old, new)| old == new).count();
        errors.push(format!(
            "{PAGE} is not what the newest files in {DATA} give, from line {} on; `cargo xtask gpu --page` makes it",
            same + 1
        ));
    }
}

/// The text of the page.
pub fn make(root: &Path) -> Result<String> {
    let mut files: Vec<(String, Run)> = Vec::new();
    let folder = root.join(DATA);
    if folder.is_dir() {
        let mut paths: Vec<_> = std::fs::read_dir(&folder)?.map(|e| Ok(e?.path())).collect::<Result<_>>()?;
        paths.retain(|path| is_measurement(path));
        paths.sort();
        for path in paths {
            let name = path.file_name().context("a file has a name")?.to_string_lossy().into_owned();
            files.push((name, Run::read(&path)?));
        }
    }
    Ok(page(newest(files)))
}

/// The newest file of each target and device, in order of these. Of two of one day the later name counts.
fn newest(files: Vec<(String, Run)>) -> Vec<(String, Run)> {
    let mut newest: BTreeMap<(String, String), (String, Run)> = BTreeMap::new();
    for (name, run) in files {
        let key = (run.target.clone(), run.device.name.clone());
        let older = |(old_name, old): &(String, Run)| (&old.date, old_name) <= (&run.date, &name);
        if newest.get(&key).is_none_or(older) {
            newest.insert(key, (name, run));
        }
    }
    newest.into_values().collect()
}

fn page(runs: Vec<(String, Run)>) -> String {
    let mut text = INTRO.to_string();
    if runs.is_empty() {
        text += "\nNo file is there: nothing has been measured with this command yet.\n";
    }
    for (name, run) in &runs {
        text += &section(name, run);
    }
    text
}

fn section(name: &str, run: &Run) -> String {
    let mut text = format!("\n## {} on {}\n\n", code(&run.target), cell(&run.device.name));
    let plan = if run.quick { "the short plan" } else { "the whole plan" };
    let _ = writeln!(
        text,
        "{}, {}, commit {}, driver {}, {} processors. {} steps of {plan}: {}. The file: [{name}](../data/gpu/{name}).",
        run.date,
        run.version,
        code(&run.commit),
        cell(&run.device.driver),
        run.machine.processors,
        run.steps.len(),
        counts(run)
    );
    let tables = [
        ("Checks of the device", checks(run)),
        ("Kernels on their samples", samples(run)),
        ("Migrations", migrations(run)),
    ];
    let more = [
        ("Kernels of the deployed programs", kernels(run)),
        ("Planted faults", bugs(run)),
        ("Speeds", speeds(run)),
    ];
    for (title, table) in tables.into_iter().chain(more) {
        if !table.rows.is_empty() {
            let _ = write!(text, "\n### {title}\n\n{}", table.markdown());
        }
    }
    let others = list_unfinished(run);
    if !others.is_empty() {
        let _ = write!(text, "\n### What did not pass\n\n{others}");
    }
    text
}

fn counts(run: &Run) -> String {
    let all =
        [Status::Passed, Status::Failed, Status::TimedOut, Status::Skipped, Status::NotRun, Status::Running];
    let counts = all.into_iter().map(|status| (run.count(status), status.name()));
    let shown: Vec<String> = counts.filter(|(n, _)| *n > 0).map(|(n, name)| format!("{n} {name}")).collect();
    shown.join(", ")
}

/// A line for each step that failed, then one for each reason why others were not run.
fn list_unfinished(run: &Run) -> String {
    let mut text = String::new();
    let mut groups: Vec<(String, Vec<String>)> = Vec::new();
    for record in run.steps.iter().filter(|record| record.status != Status::Passed) {
        let reason = record.reason.as_deref().unwrap_or("no reason given");
        let reason = cell(&reason.lines().take(3).collect::<Vec<_>>().join(" "));
        let (name, status) = (code(&record.name), record.status.name());
        if record.status.is_failure() {
            let _ = writeln!(text, "* {name}, {status}: {reason}");
            continue;
        }
        let why = format!("{status}, {reason}");
        match groups.iter_mut().find(|(known, _)| *known == why) {
            Some((_, names)) => names.push(name),
            None => groups.push((why, vec![name])),
        }
    }
    for (why, names) in groups {
        let _ = writeln!(text, "* {why}: {}", names.join(", "));
    }
    text
}

struct Table {
    header: &'static [&'static str],
    rows: Vec<Vec<String>>,
}

impl Table {
    fn markdown(&self) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let header: Vec<String> = self.header.iter().map(|h| h.to_string()).collect();
        let rule = vec!["---".to_string(); self.header.len()];
        let rows: String = self.rows.iter().map(|row| line(row)).collect();
        line(&header) + &line(&rule) + &rows
    }
}

/// Records with numbers of one kind. Numbers of a step that was stopped are those of a part.
fn ended_records(run: &Run) -> impl Iterator<Item = (&Record, &Numbers)> {
    let done = run.steps.iter().filter(|r| matches!(r.status, Status::Passed | Status::Failed));
    done.filter_map(|record| Some((record, record.numbers.as_ref()?)))
}

fn checks(run: &Run) -> Table {
    let rows = ended_records(run).filter_map(|(record, numbers)| {
        let Numbers::DeviceCheck(n) = numbers else { return None };
        let counts = [n.passed, n.failed, n.skipped].map(|n| n.to_string());
        Some([vec![code(&record.name)], counts.to_vec(), vec![worst(&n.worst), seconds(record)]].concat())
    });
    Table { header: &["step", "passed", "failed", "skipped", "worst ratio", "s"], rows: rows.collect() }
}

fn samples(run: &Run) -> Table {
    let kernels = ended_records(run).flat_map(|(_, numbers)| match numbers {
        Numbers::DeviceCheck(n) => n.kernels.as_slice(),
        _ => &[],
    });
    let rows =
        kernels.map(|k| vec![code(&k.kernel), k.passed.to_string(), k.failed.to_string(), ratio(k.worst)]);
    Table { header: &["kernel", "samples right", "wrong", "worst ratio"], rows: rows.collect() }
}

fn migrations(run: &Run) -> Table {
    let rows = ended_records(run).filter_map(|(record, numbers)| {
        let Numbers::Migrate(n) = numbers else { return None };
        let name = record.name.strip_prefix("migrate/").unwrap_or(&record.name);
        Some([vec![code(name)], migration(n), vec![seconds(record)]].concat())
    });
    const HEADER: &[&str] = &[
        "model, types",
        "verdict",
        "operators",
        "recorded calls checked",
        "cases",
        "failed",
        "worst ratio",
        "KL",
        "top-1",
        "text",
        "decode launches checked",
        "prefill launches checked",
        "s",
    ];
    Table { header: HEADER, rows: rows.collect() }
}

fn migration(n: &Migrate) -> Vec<String> {
    let of = |count: &LaunchCount| format!("{} of {}", count.checked, count.of);
    let text = n.text_equal.map_or("–", |equal| if equal { "equal" } else { "differs" });
    vec![
        n.verdict.clone(),
        format!("{} of {}", n.accepted, n.operators),
        format!("{} of {}", n.checked, n.calls),
        n.cases.to_string(),
        n.failed.to_string(),
        worst(&n.worst),
        n.kl.map_or("–".into(), |kl| format!("{kl:.1e}")),
        n.top1.map_or("–".into(), |share| format!("{:.1} %", 100.0 * share)),
        text.into(),
        of(&n.launches.decode),
        of(&n.launches.prefill),
    ]
}

/// What all migrations together say of one kernel in one phase.
#[derive(Default)]
struct KernelRow {
    programs: u64,
    unchecked: u64,
    launches: u64,
    cases: u64,
    failed: u64,
    worst: Option<f64>,
}

fn kernels(run: &Run) -> Table {
    let mut rows: BTreeMap<(&str, &str), KernelRow> = BTreeMap::new();
    for (_, numbers) in ended_records(run) {
        let Numbers::Migrate(n) = numbers else { continue };
        for kernel in &n.deployed {
            let row = rows.entry((&kernel.kernel, &kernel.phase)).or_default();
            row.programs += 1;
            row.unchecked += u64::from(kernel.cases == 0);
            row.launches += kernel.launches;
            row.cases += kernel.cases;
            row.failed += kernel.failed;
            row.worst = [row.worst, kernel.worst].into_iter().flatten().max_by(f64::total_cmp);
        }
    }
    let rows = rows.into_iter().map(|((kernel, phase), row)| {
        let counts =
            [row.programs, row.unchecked, row.launches, row.cases, row.failed].map(|n| n.to_string());
        let worst = row.worst.map_or("not checked".into(), ratio);
        [vec![code(kernel), phase.into()], counts.to_vec(), vec![worst]].concat()
    });
    let header =
        &["kernel", "phase", "programs", "of these unchecked", "launches", "cases", "failed", "worst ratio"];
    Table { header, rows: rows.collect() }
}

fn bugs(run: &Run) -> Table {
    let rows = ended_records(run).filter_map(|(record, numbers)| {
        let Numbers::Bugs(n) = numbers else { return None };
        let counts = [n.mutants, n.faults, n.missed, n.lost, n.clean, n.false_alarms, n.diagnoses];
        let more = [n.diagnosed_faults, n.diagnoses_missed, n.diagnoses_false];
        let counts = counts.iter().chain(&more).map(u64::to_string).collect();
        Some([vec![code(&record.name)], counts, vec![seconds(record)]].concat())
    });
    const HEADER: &[&str] = &[
        "step",
        "mutants",
        "faults",
        "missed",
        "did not end or lost the device",
        "clean runs",
        "false alarms",
        "diagnoses",
        "their faults",
        "missed",
        "false reports",
        "s",
    ];
    Table { header: HEADER, rows: rows.collect() }
}

fn speeds(run: &Run) -> Table {
    let rows = ended_records(run).filter_map(|(record, numbers)| {
        let Numbers::Decode(n) = numbers else { return None };
        let name = record.name.strip_prefix("decode/").unwrap_or(&record.name);
        Some([vec![code(name)], speed(n)].concat())
    });
    const HEADER: &[&str] = &[
        "model, weights",
        "decode, tokens/s: median (least to most)",
        "share of the floor",
        "prefill, tokens/s: median (least to most)",
        "runs",
        "memory: at most",
    ];
    Table { header: HEADER, rows: rows.collect() }
}

fn speed(n: &Decode) -> Vec<String> {
    let (d, p) = (&n.decode, &n.prefill);
    vec![
        format!("{:.1} ({:.1}–{:.1}), {} after {}", d.median, d.min, d.max, n.tokens, n.prompt_tokens),
        format!(
            "{:.1} % of {} at {}/s",
            100.0 * n.share_of_floor,
            bytes(n.bytes_per_token as f64),
            bytes(n.bandwidth)
        ),
        format!("{:.0} ({:.0}–{:.0}), of {}", p.median, p.min, p.max, n.prefill_tokens),
        n.runs.to_string(),
        bytes(n.peak_bytes as f64),
    ]
}

fn bytes(count: f64) -> String {
    let units = [(1e12, "TB"), (1e9, "GB"), (1e6, "MB")];
    let (unit, name) = units.into_iter().find(|(unit, _)| count >= *unit).unwrap_or((1e3, "kB"));
    format!("{:.2} {name}", count / unit)
}

fn worst(worst: &Option<Worst>) -> String {
    worst.as_ref().map_or("–".into(), |worst| ratio(worst.ratio))
}

/// A ratio as a person reads it.
fn ratio(ratio: f64) -> String {
    match ratio {
        r if r >= 1e4 => format!("{r:.1e}"),
        // What fails must not look as if it were at the limit.
        r if r > 1.0 => format!("{:.2}", (r * 100.0).ceil() / 100.0),
        r => format!("{r:.2}"),
    }
}

fn seconds(record: &Record) -> String {
    record.seconds.map_or("–".into(), |seconds| format!("{seconds:.1}"))
}

/// Text that stands in a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

fn code(text: &str) -> String {
    format!("`{}`", cell(text))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_page_that_is_not_made_from_the_files_is_a_violation() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let violations = || {
            let mut errors = Vec::new();
            check(root, &mut errors);
            errors
        };
        assert!(violations()[0].contains("docs/results/gpu.md is not what"), "{:?}", violations());
        std::fs::create_dir_all(root.join(DATA)).unwrap();
        std::fs::create_dir_all(root.join(PAGE).parent().unwrap()).unwrap();
        std::fs::write(root.join(PAGE), make(root).unwrap()).unwrap();
        assert_eq!(violations(), Vec::<String>::new());
        let page = make(root).unwrap();
        assert!(page.contains("No file is there"), "{page}");
        std::fs::write(root.join(PAGE), page.replace("No file", "A file")).unwrap();
        let line = page.lines().position(|line| line.starts_with("No file")).unwrap() + 1;
        assert!(violations()[0].contains(&format!("from line {line} on")), "{:?}", violations());
        std::fs::write(root.join(DATA).join("x.json"), "{}").unwrap();
        assert!(violations()[0].contains("x.json is no record of a run"), "{:?}", violations());
    }

    #[test]
    fn a_ratio_that_fails_does_not_look_like_the_limit() {
        let cases = [
            (0.9896, "0.99"),
            (0.9999, "1.00"),
            (1.0, "1.00"),
            (1.0001, "1.01"),
            (16590.0, "1.7e4"),
            (f64::MAX, "1.8e308"),
        ];
        for (value, text) in cases {
            assert_eq!(ratio(value), text);
        }
    }
}
