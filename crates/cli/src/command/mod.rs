//! The list of commands; each is one file.
//!
//! A command is a type of flags with a function `run`. Its doc comment is its help, so that the list below has names
//! alone.

mod align;
mod bench;
mod carve;
mod chat;
mod check;
mod common;
mod compile;
mod completions;
mod device;
mod diagnose;
mod doctor;
mod engine;
mod eval;
mod generate;
mod guard;
mod inspect;
mod kernel;
mod logits;
mod man;
mod migrate;
mod quantize;
mod reduce;
mod run;
mod serve;
mod suite;
mod tune;

use crate::Outcome;
use anyhow::Result;
use clap::Subcommand;

/// The enumeration of commands, and the call of the one that was given.
macro_rules! commands {
    ($($(#[$doc:meta])* $name:ident($ty:ty)),+ $(,)?) => {
        #[derive(Subcommand)]
        pub enum Command { $($(#[$doc])* $name($ty)),+ }

        impl Command {
            /// Runs the command.
            pub fn run(self) -> Result<Outcome> {
                match self { $(Command::$name(command) => command.run()),+ }
            }
        }
    };
}

// The order is that of the help.
commands! {
    Inspect(inspect::InspectCommand),
    Carve(carve::CarveCommand),
    Check(check::CheckCommand),
    Migrate(migrate::MigrateCommand),
    Diagnose(diagnose::DiagnoseCommand),
    Reduce(reduce::ReduceCommand),
    Run(run::RunCommand),
    Compile(compile::CompileCommand),
    Generate(generate::GenerateCommand),
    Chat(chat::ChatCommand),
    Serve(serve::ServeCommand),
    Logits(logits::LogitsCommand),
    Quantize(quantize::QuantizeCommand),
    Eval(eval::EvalCommand),
    Align(align::AlignCommand),
    Kernel(kernel::KernelCommand),
    Device(device::DeviceCommand),
    Doctor(doctor::DoctorCommand),
    Bench(bench::BenchCommand),
    Suite(suite::SuiteCommand),
    Tune(tune::TuneCommand),
    Completions(completions::CompletionsCommand),
    Man(man::ManCommand),
}
