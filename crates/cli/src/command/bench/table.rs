//! The bench's results for people: tables on the terminal and in Markdown.
//!
//! All numbers come from the report, so that a table can be made again from its file.

use crate::output::table;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use tapml::bugs::bench::{BenchReport, CauseRate, Diagnosed, GRID, MutantRecord, POLICIES};

/// Counts of one row: mutants, faults, seen.
#[derive(Default)]
struct Count {
    /// All that were tried.
    mutants: usize,
    /// Those that change no result of this model.
    equivalent: usize,
    /// Those that do.
    faults: usize,
    /// Faults that were found.
    seen: usize,
    /// Time of all mutants.
    seconds: f64,
}

/// Counts of all mutants by a key.
fn counts<K: Ord>(report: &BenchReport, key: impl Fn(&MutantRecord) -> K) -> BTreeMap<K, Count> {
    counts_of(report, |_| true, key)
}

/// Counts of those that are wanted.
fn counts_of<K: Ord>(
    report: &BenchReport,
    wanted: impl Fn(&MutantRecord) -> bool,
    key: impl Fn(&MutantRecord) -> K,
) -> BTreeMap<K, Count> {
    let mut rows: BTreeMap<K, Count> = BTreeMap::new();
    for record in report.mutants.iter().filter(|record| wanted(record)) {
        let row = rows.entry(key(record)).or_default();
        row.mutants += 1;
        row.equivalent += usize::from(!record.real());
        row.faults += usize::from(record.real());
        row.seen += usize::from(record.real() && record.sighting.is_caught());
        row.seconds += record.sighting.seconds;
    }
    rows
}

/// One table as header and rows.
struct TableRows {
    /// As many as each row has cells.
    header: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl TableRows {
    /// For a terminal.
    fn text(&self) -> String {
        let mut out = table(&self.header);
        self.rows.iter().for_each(|row| out.add_row(row));
        out.to_string()
    }

    /// For a document.
    fn markdown(&self) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let header: Vec<String> = self.header.iter().map(|h| h.to_string()).collect();
        let rule: Vec<String> = self.header.iter().map(|_| "---".to_string()).collect();
        let rows = self.rows.iter().map(|row| line(row)).collect::<String>();
        line(&header) + &line(&rule) + &rows
    }
}

/// Counts by a key, which the first column names.
fn breakdown(report: &BenchReport, name: &'static str, key: impl Fn(&MutantRecord) -> String) -> TableRows {
    let rows = counts(report, key).into_iter().map(|(name, c)| {
        let mean = c.seconds / c.mutants.max(1) as f64;
        let numbers = [c.mutants, c.equivalent, c.faults, c.seen, c.faults - c.seen].map(|n| n.to_string());
        [vec![name], numbers.to_vec(), vec![format!("{mean:.2}")]].concat()
    });
    let header = vec![name, "mutants", "no fault here", "faults", "seen", "missed", "s each"];
    TableRows { header, rows: rows.collect() }
}

/// What the programs launch, row by row, those without mutants too: how many there are, were tried, and were seen.
fn launched_rows(report: &BenchReport) -> TableRows {
    let tried = counts(report, |r| r.row.clone());
    // Constants were tuned on the other half: this one alone tests them.
    let held = counts_of(report, |r| !r.tuned_on, |r| r.row.clone());
    let rows = report.rows.iter().map(|row| {
        let (none, phases) = (Count::default(), row.phases.join(", "));
        let (c, h) = (tried.get(&row.row).unwrap_or(&none), held.get(&row.row).unwrap_or(&none));
        let numbers = [row.mutants, row.invalid, c.mutants, c.equivalent, c.faults, c.faults - c.seen];
        let numbers = numbers.into_iter().chain([h.faults, h.faults - h.seen]).map(|n| n.to_string());
        [vec![row.row.clone(), phases], numbers.collect(), vec![row.none.clone().unwrap_or_default()]]
            .concat()
    });
    let header = vec![
        "kernel row",
        "phases",
        "mutants",
        "do not compile",
        "tried",
        "no fault here",
        "faults",
        "missed",
        "held out",
        "missed, held out",
        "none, because",
    ];
    TableRows { header, rows: rows.collect() }
}

/// What each policy misses and raises; `tuned` chooses the half of the mutants, `None` takes both.
fn rates(report: &BenchReport, tuned: Option<bool>) -> TableRows {
    let row = |r: tapml::bugs::bench::PolicyRate| {
        let numbers = [r.faults, r.missed, r.clean, r.false_alarms].map(|n| n.to_string());
        [vec![r.policy, r.used_by], numbers.to_vec()].concat()
    };
    let rows = report.rates(tuned).into_iter().map(row).collect();
    TableRows { header: vec!["policy", "used by", "faults", "missed", "clean runs", "false alarms"], rows }
}

/// Full diagnoses by what was diagnosed.
fn diagnoses(report: &BenchReport) -> TableRows {
    // Names of cases begin with their kind, except those of single faults.
    let kind = |d: &Diagnosed| match (d.name.split('/').next(), d.bugs.len()) {
        (Some("several"), _) => "several faults",
        (Some("clean"), _) => "no fault",
        (_, 0) => "a fault that changes nothing",
        _ => "one fault",
    };
    let mut rows: BTreeMap<&str, [usize; 6]> = BTreeMap::new();
    let mut seconds: BTreeMap<&str, f64> = BTreeMap::new();
    for d in &report.diagnosed {
        let row = rows.entry(kind(d)).or_default();
        let own = [1, d.bugs.len(), d.reports.len(), d.missed.len(), d.false_reports(), d.named];
        row.iter_mut().zip(own).for_each(|(all, own)| *all += own);
        *seconds.entry(kind(d)).or_default() += d.seconds;
    }
    let rows = rows.into_iter().map(|(name, counts)| {
        let mean = seconds[name] / counts[0].max(1) as f64;
        [vec![name.to_string()], counts.map(|n| n.to_string()).to_vec(), vec![format!("{mean:.1}")]].concat()
    });
    let header = vec!["diagnoses", "runs", "faults", "reports", "missed", "false", "cause right", "s each"];
    TableRows { header, rows: rows.collect() }
}

/// Whether the stated causes are right, by family.
fn causes(report: &BenchReport) -> TableRows {
    let row = |r: CauseRate| {
        // Rounded down: 99.9 % is not all.
        let right = format!("{:.0} %", (100.0 * r.right as f64 / r.reported.max(1) as f64).floor());
        let [faults, reported, certain, wrong] =
            [r.faults, r.reported, r.certain, r.certain_wrong].map(|n| n.to_string());
        vec![r.family, faults, reported, right, certain, wrong]
    };
    let header = vec!["family", "faults", "reports", "cause right", "certain", "certain and wrong"];
    TableRows { header, rows: report.causes().into_iter().map(row).collect() }
}

/// What other constants would miss and raise, on the half that they are tuned on and on the other.
fn grid(report: &BenchReport) -> TableRows {
    let row = |i: usize, (base, chain, shared, lambda): (f64, f64, f64, f64)| {
        let of = |tuned: bool| {
            let faults = report.mutants.iter().filter(|r| r.real() && r.tuned_on == tuned);
            // An error is seen whatever the constants are.
            let missed = faults.filter(|r| {
                r.sighting.error.is_none() && r.sighting.grid.get(i).is_none_or(|&ratio| ratio <= 1.0)
            });
            let clean = report.clean.iter().filter(|c| c.tuned_on == tuned);
            let alarms = clean.filter(|c| c.grid.get(i).is_some_and(|&ratio| ratio > 1.0));
            [missed.count().to_string(), alarms.count().to_string()]
        };
        [[base, chain, shared, lambda].map(|v| v.to_string()).to_vec(), of(true).to_vec(), of(false).to_vec()]
            .concat()
    };
    let header =
        vec!["BASE", "CHAIN", "SHARED", "λ", "missed", "false", "missed, held out", "false, held out"];
    TableRows { header, rows: GRID.iter().enumerate().map(|(i, &set)| row(i, set)).collect() }
}

/// One line of totals.
fn summary(report: &BenchReport) -> String {
    let classes: Vec<String> = report.classes().iter().map(|(name, n)| format!("{n} {name}")).collect();
    let (missed, alarms) = (report.missed_faults().count(), report.false_alarms().count());
    let lost = report.mutants.iter().filter(|r| r.sighting.lost).count();
    let wrong = report.certain_and_wrong().count();
    format!(
        "{}: {} mutants ({}; {lost} did not end or cost the device), {} clean runs, {missed} missed, {alarms} false, {wrong} causes certain and wrong, {:.0} s",
        report.target,
        report.mutants.len(),
        classes.join(", "),
        report.clean.len(),
        report.seconds
    )
}

/// What was missed and what was false, each with its numbers.
fn wrong(report: &BenchReport) -> String {
    let mut text = String::new();
    for r in report.missed_faults() {
        let half = if r.tuned_on { "tuned on" } else { "held out" };
        let (id, ratio) = (&r.id, r.sighting.ratio);
        let _ = writeln!(text, "\nmissed: {id} ({half}), largest ratio {ratio:.3}\n{}", r.diff);
    }
    for c in report.false_alarms() {
        let _ = writeln!(
            text,
            "\nfalse: {}, {} of {} calls: {:?}, {} by the filter: {:?}, of {} made calls: {:?}",
            c.name, c.failed, c.cases, c.failures, c.accused, c.measured, c.made, c.made_failures
        );
    }
    for d in
        report.diagnosed.iter().filter(|d| d.error.is_some() || !d.missed.is_empty() || d.false_reports() > 0)
    {
        let _ =
            writeln!(text, "\ndiagnosis of {}: {} faults, {} reports", d.name, d.bugs.len(), d.reports.len());
        let error = d.error.iter().map(|e| format!("  no diagnosis: {e}\n"));
        text.extend(error.chain(d.missed.iter().map(|id| format!("  missed: {id}\n"))));
        for r in d.reports.iter().filter(|r| r.bug.is_none()) {
            let _ = writeln!(text, "  false: {} ({}), {}: {}", r.op, r.kind, r.cause, r.evidence);
        }
    }
    for (d, r) in report.certain_and_wrong() {
        let bug = r.bug.as_deref().unwrap_or("no fault of its own");
        let _ = writeln!(text, "\ncertain and wrong: {} of {bug} ({}): {}", r.cause, d.name, r.evidence);
    }
    text
}

/// For a terminal.
pub fn text(report: &BenchReport) -> String {
    let families = breakdown(report, "family", |r| r.family.to_string());
    let models = breakdown(report, "model", |r| r.model.clone());
    let (launched, rates) = (launched_rows(report), rates(report, None));
    let (diagnoses, causes) = (diagnoses(report), causes(report));
    format!(
        "{}\n\n{}\n\n{}\n\n{}\n\n{}\n\n{}\n{}\n{}",
        families.text(),
        models.text(),
        launched.text(),
        rates.text(),
        diagnoses.text(),
        causes.text(),
        wrong(report),
        summary(report)
    )
}

/// For a document.
pub fn markdown(report: &BenchReport) -> String {
    let tables = [
        ("By family", breakdown(report, "family", |r| r.family.to_string())),
        ("By model", breakdown(report, "model", |r| r.model.clone())),
        ("By mutation operator", breakdown(report, "mutation", |r| r.operator.clone())),
        ("By operator", breakdown(report, "operator", |r| r.op.clone())),
        ("By kernel row", launched_rows(report)),
        ("Policies, all", rates(report, None)),
        ("Policies, held out", rates(report, Some(false))),
        ("Full diagnoses", diagnoses(report)),
        ("Stated causes", causes(report)),
        ("Constants of the verdict", grid(report)),
    ];
    let mut text = format!("# Bench of bugs\n\n{}\n", summary(report));
    for (title, rows) in tables {
        let _ = write!(text, "\n## {title}\n\n{}", rows.markdown());
    }
    // The table of policies takes one result of each for granted.
    debug_assert!(report.clean.iter().all(|c| c.policies.len() == POLICIES.len()));
    let wrong = wrong(report);
    if !wrong.is_empty() {
        let _ = write!(text, "\n## Missed and false\n\n```\n{}\n```\n", wrong.trim());
    }
    text
}
