//! TapML's public Rust API: the names that others may build on, and nothing else. Cargo features choose the backends.
#![warn(missing_docs)]

/// Layers of a checkpoint beside recorded activations of its authors.
pub mod align {
    pub use tapml_jobs::align::{AlignJob, AlignReport, Departure, Reference};
}
/// What hubs on several hosts share.
#[cfg(feature = "remote")]
pub mod broker {
    pub use tapml_broker::HubTable;
}
/// Mutants of kernels and programs, and what suites and diagnosis find of them.
pub mod bugs {
    pub use tapml_bugs::{Catalogue, Family, Mutant, RowMutants};
    /// Diagnosis measured on mutants.
    pub mod bench {
        pub use tapml_bugs::bench::{
            BenchReport, CauseRate, Diagnosed, Fixture, FixtureOptions, GRID, MutantRecord, Opener, POLICIES,
            PlannedCase, PolicyRate, Prepared, RunOptions, SCHEMA, Sampling, Selection, clean, deadline,
            diagnoses, kernels,
        };
    }
    /// How many mutants a suite finds.
    pub mod mutation_score {
        pub use tapml_bugs::mutation_score::{
            KilledSurvivor, ScoreOptions, SuiteScore, recorded_cases, score, seek,
        };
    }
}
/// Devices and what they tell of themselves.
pub mod device {
    pub use tapml_device::{
        AdapterKind, BindingKind, Device, DeviceInfo, ErrorKind, FindingKind, Language, Limits,
    };
    /// What every device must do.
    pub mod conformance {
        pub use tapml_device::conformance::{CaseOutcome, cases};
    }
}
/// Every faulty operator in one run, with its cause.
pub mod diagnose {
    pub use tapml_diagnose::{
        Blames, DiagnoseOptions, Diagnosis, Fault, FaultKind, Impact, NotRun, Reduction, html,
    };
}
/// What this machine has, and what is missing.
pub mod doctor {
    pub use tapml_jobs::doctor::{Doctor, Examination, PartKind, PartState, PlatformPart};
}
/// Programs and memory of a model on devices that are not here.
pub mod dry_run {
    pub use tapml_jobs::dry_run::{
        DryRun, Lengths, ListedModel, ModelPlan, TARGETS, Target, TargetPlan, read_list,
    };
}
/// Text in, tokens, text out.
pub mod engine {
    pub use tapml_engine::{
        BatchLimits, BatchRunner, DraftModel, EmbeddingModel, EmbeddingOptions, EmbeddingStats,
        EncoderLimits, Engine, EngineOptions, EngineStats, Finish, GenerateOptions, Generation, Generator,
        ImageLimits, NgramOptions, PagedRunner, PlacedImage, PlatformEncoder, PoolingMode, Request,
        RequestEvent, RequestHandle, RequestOptions, Sampler, Sampling, SharedImage, SubmitError,
        TextEncoder, Tokenizer, bundled_prompts, generate_text,
    };
}
/// A model made ready to serve.
pub mod serve {
    pub use tapml_jobs::serve::{LoadedModel, ServeOptions, Serving};
}
/// Two platforms compared on text.
pub mod eval {
    pub use tapml_jobs::eval::{Comparison, Side, compare, split_windows};
}
/// Tasks with one right answer each, solved in several ways side by side.
pub mod tasks {
    pub use tapml_jobs::tasks::{KindCount, Task, TaskAnswer, TaskRow, TaskRun, judge_rows, read_tasks};
}
/// Platforms that run graphs.
pub mod exec {
    pub use tapml_exec::{
        Call, Interface, NodeServer, OperatorPlatform, Platform, PlatformInfo, RUNTIMES, Session, WORDS,
    };
}
/// Files and folders, written whole or not at all.
pub mod files {
    pub use tapml_files::{Lock, NewFolder, Temporary, abandon, expect_writable, read, read_text, write};
}
/// One suite on many devices.
#[cfg(feature = "remote")]
pub mod fleet {
    pub use tapml_jobs::fleet::{
        BrokerQueue, Cell, Fleet, FleetQueue, FleetReport, Identity, Memory, Spread,
    };
}
/// Graphs, operators, tensors.
pub mod graph {
    pub use tapml_graph::{
        Bytes, DType, ErrorKind, Graph, Model, Node, NodeId, Op, Origin, Result, Summary, Symbols, Tensor,
        TensorType, ValueId, byte_len,
    };
    /// Fused operators.
    pub mod fusion {
        pub use tapml_graph::fusion::{FUSIONS, find};
    }
    /// The operator list.
    pub mod op {
        pub use tapml_graph::op::{Foreign, OPS, names};
    }
}
/// Checkpoints and arrays of others.
pub mod import {
    pub use tapml_import::{ARCHITECTURES, Checkpoint, LogitRows, read_config};
    /// NumPy's arrays.
    pub mod npy {
        pub use tapml_import::npy::{read, write};
    }
    /// ONNX files.
    pub mod onnx {
        pub use tapml_import::onnx::{File, NewModel, NewNode, Outline, ValueOutline, is_onnx};
    }
    /// Packed weights.
    pub mod quantize {
        pub use tapml_import::quantize::{FORMS_HELP, Scheme, write};
    }
    /// Tensors of Hugging Face.
    pub mod safetensors {
        pub use tapml_import::safetensors::{File, write};
    }
}
/// The long jobs as plain data.
pub mod jobs {
    pub use tapml_jobs::job::{
        CarveJob, CheckJob, DiagnoseJob, MigrateJob, RecordJob, Run, RunJob, RunReport, open_platform,
        open_platform_for, oracles, overrides, overrides_for, write_program,
    };
}
/// The kernel list.
pub mod kernels {
    pub use tapml_kernels::{BuiltIn, Choice, KERNELS, Overrides, Phase, TuningCache, any_device, settings};
}
/// The graph as a device runs it.
pub mod lowered {
    pub use tapml_jobs::lowered::Lowered;
}
/// Suites, verdicts, and the ledger of a migration.
pub mod migrate {
    pub use tapml_migrate::{
        CheckOptions, Checked, Hash, KernelChoices, Oracles, Progress, Quiet, RegionOutcome, Regions,
        SampleCheck, SmallestRegion, SoFar, Stop, check, check_calls, check_rows, check_samples,
        composed_suites, graph_hash, html, junit, ratio_text, weight_entries, weights_hash,
    };
    /// The state of a migration.
    pub mod ledger {
        pub use tapml_migrate::ledger::OpState;
    }
    /// What check and migrate say.
    pub mod report {
        pub use tapml_migrate::report::{
            CheckReport, Failure, MigrateReport, OpCheck, OpReport, Outcome, RegimeCount, Unreached,
            is_defect,
        };
    }
    /// Recorded calls.
    pub mod suite {
        pub use tapml_migrate::suite::{Case, Suite, part};
    }
}
/// A model from its folder.
pub mod model {
    pub use tapml_jobs::model::{GraphOptions, expect_context, suite_model, teacher_forced};
}
/// ONNX's node tests.
pub mod node_tests {
    pub use tapml_jobs::node_tests::NodeTests;
}
/// Devices offered to others.
#[cfg(feature = "remote")]
pub mod offer {
    pub use tapml_jobs::agent_options::AgentOptions;
    pub use tapml_jobs::offer::{Local, Offer, Offered};
}
/// ONNX models and their inputs.
pub mod onnx {
    pub use tapml_jobs::onnx::{Inputs, TracedModel};
}
/// From a platform's word to the thing itself.
pub mod platform {
    pub use tapml_jobs::platform::{
        Platform, PlatformSpec, count_reopened, device_words, fastest, open_device, open_with_kernels,
    };
}
/// What a model reads.
pub mod prompts {
    pub use tapml_jobs::prompts::{Given, Prompts};
}
/// A failing call as a small reproducer.
pub mod reduce {
    pub use tapml_reduce::{
        ExportedProgram, Files, ReduceOptions, Reduced, ReductionReport, Reproducer, RuntimeReproducer,
        Specimen, reduce,
    };
}
/// Devices elsewhere.
#[cfg(feature = "remote")]
pub mod rpc {
    pub use tapml_rpc::{Address, Remote, RemoteOperators};
    /// Serves devices of this machine.
    pub mod agent {
        pub use tapml_rpc::agent::{
            Agent, Config, Hub, Isolation, Settings, Stopper, default_name, run_session, token_file,
        };
    }
    /// Uses devices of other machines.
    pub mod client {
        pub use tapml_rpc::client::{OperatorDevice, offers, operators, read_offer};
        /// Calls that a server of nodes must get right.
        pub mod node_cases {
            pub use tapml_rpc::client::node_cases::{Tester, cases};
        }
    }
    /// What every server of nodes must do.
    pub mod conformance {
        pub use tapml_rpc::conformance::rules;
    }
    /// Brings agents and clients together.
    pub mod hub {
        pub use tapml_rpc::hub::{Config, Hub, Peers};
    }
    /// Certificates.
    pub mod tls {
        pub use tapml_rpc::tls::server;
    }
    /// The messages.
    pub mod wire {
        pub use tapml_rpc::wire::Offer;
    }
}
/// Programs on devices, called with tensors of the caller.
pub mod runtime {
    pub use tapml_jobs::runtime::{
        CompileOptions, Device, DeviceTensor, Function, FunctionArgument, Library, Module, OwnKernel,
        Uploaded, compile, parse_groups,
    };
}
/// OpenAI's API over a model.
pub mod server {
    pub use tapml_jobs::served::ServedOptions;
    pub use tapml_server::{
        ApiKeys, HttpServer, LoadLengths, LoadOptions, LoadReport, LoadTimes, LocalAnswer, LocalChat,
        ServedKind, ServedModel, ServedShadow, ServerOptions, ServerStopper, measure_load,
    };
}
/// Text on its way to people.
pub mod shown {
    pub use tapml_jobs::shown::{first_lines, json, report, strong, whole};
}
/// A folder from which a browser runs a model.
pub mod site {
    pub use tapml_jobs::site::{Site, SiteFile, SiteJob, SiteProgram, SiteSuite};
}
/// How fast a model runs.
pub mod speed {
    pub use tapml_jobs::speed::{
        DraftSpeedOptions, DraftSpeedReport, KernelTime, Rate, SpeedOptions, SpeedReport, StepTime, measure,
        measure_drafts,
    };
}
/// Kernels chosen by measurement.
pub mod tune {
    pub use tapml_jobs::tune::{Phase, TuneJob, Tuned, cache_file};
}

pub use tapml_graph::{Error, ErrorKind, Result};
