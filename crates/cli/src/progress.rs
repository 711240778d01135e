//! Progress of long work on standard error: a bar on a terminal, the notes of a job as lines elsewhere; nothing with `--quiet`.
//!
//! It never mixes with what is printed: a bar is removed before a command prints its report.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tapml::shown;

/// Whether progress is not shown.
static QUIET: AtomicBool = AtomicBool::new(false);

/// Shows no progress from now on.
pub fn hide() {
    // No other memory depends on the flag.
    QUIET.store(true, Ordering::Relaxed);
}

/// Whether `--quiet` was given.
fn is_quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}

/// A bar that shows the stage at hand, until it is dropped. Nothing is drawn unless standard error is a terminal.
pub struct Bar {
    /// Hidden where nothing may be drawn; lines are printed all the same.
    bar: ProgressBar,
}

impl Bar {
    /// A bar without a stage yet.
    pub fn new() -> Bar {
        let target = if std::io::stderr().is_terminal() && !is_quiet() {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        let bar = ProgressBar::with_draw_target(Some(0), target);
        bar.set_style(style(0));
        // Time passes on the bar even while a kernel runs.
        bar.enable_steady_tick(Duration::from_millis(120));
        Bar { bar }
    }

    /// A bar at a stage of which the number of units is not known.
    pub fn at_stage(name: &str) -> Bar {
        let bar = Bar::new();
        bar.stage(name, 0);
        bar
    }

    /// Starts a stage of `total` units, 0 if nobody knows how many.
    pub fn stage(&self, name: &str, total: u64) {
        self.bar.set_style(style(total));
        self.bar.set_length(total);
        self.bar.set_position(0);
        self.bar.set_message(shown::report(name, false));
    }

    /// Some units are done.
    pub fn advance(&self, units: u64) {
        self.bar.inc(units);
    }

    /// Prints a line above the bar.
    pub fn line(&self, text: &str) {
        if is_quiet() {
            return;
        }
        let text = &shown::report(&shown::first_lines(text), false);
        // A hidden bar prints no lines either.
        if self.bar.is_hidden() { eprintln!("{text}") } else { self.bar.println(text) }
    }

    /// Prints something that is no progress, above the bar.
    pub fn suspend<T>(&self, print: impl FnOnce() -> T) -> T {
        self.bar.suspend(print)
    }

    /// Removes the bar. Removing it again leaves what was printed since alone.
    pub fn finish(&self) {
        if !self.bar.is_finished() {
            self.bar.finish_and_clear();
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.finish();
    }
}

/// With a count if the number of units is known.
fn style(total: u64) -> ProgressStyle {
    let template = match total {
        0 => "{spinner} {msg:32} {elapsed}",
        _ => "{spinner} {msg:32} {wide_bar} {pos}/{len} {elapsed}",
    };
    // The templates are constant; the plain bar stands in for a mistake in them.
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

impl tapml::migrate::Progress for Bar {
    fn stage(&self, name: &str, total: u64) {
        Bar::stage(self, name, total);
    }

    fn advance(&self, units: u64) {
        Bar::advance(self, units);
    }

    fn note(&self, text: &str) {
        self.line(text);
    }
}
