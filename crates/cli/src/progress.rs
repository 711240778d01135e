//! Progress of long work on standard error: a bar on a terminal, one line per stage elsewhere.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::Duration;
use tapml::shown;

/// A bar that shows the stage at hand. Nothing is drawn unless standard error is a terminal.
pub struct Bar {
    bar: ProgressBar,
}

impl Bar {
    /// A bar without a stage yet.
    pub fn new() -> Bar {
        let target = match std::io::stderr().is_terminal() {
            true => ProgressDrawTarget::stderr(),
            false => ProgressDrawTarget::hidden(),
        };
        let bar = ProgressBar::with_draw_target(Some(0), target);
        bar.set_style(style());
        bar.enable_steady_tick(Duration::from_millis(120));
        Bar { bar }
    }

    /// Starts a stage of `total` units.
    pub fn stage(&self, name: &str, total: u64) {
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
        let text = &shown::report(&shown::beginning(text), false);
        match self.bar.is_hidden() {
            true => eprintln!("{text}"),
            false => self.bar.println(text),
        }
    }

    /// Removes the bar.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

fn style() -> ProgressStyle {
    ProgressStyle::with_template("{spinner} {msg:32} {wide_bar} {pos}/{len} {elapsed}")
        .unwrap_or_else(|_| ProgressStyle::default_bar())
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
