//! The crates of the workspace, from the ground up.

/// A crate, and the crates of the workspace that it is made from.
pub struct Crate {
    /// Its name, without the prefix `tapml-`.
    pub name: &'static str,
    /// What it holds, for `ARCHITECTURE.md`.
    pub holds: &'static str,
    /// The crates that it uses, all of them further up.
    pub uses: &'static [&'static str],
    /// The crates that only its tests use.
    pub tests_use: &'static [&'static str],
}

/// Every crate. Only `jobs` sees every backend.
pub const CRATES: &[Crate] = &[
    Crate {
        name: "graph",
        holds: "dtypes, symbolic sizes, host tensors, operators, graphs, verifier, text form, rewrites, the error type. No I/O, names no device.",
        uses: &[],
        tests_use: &[],
    },
    Crate { name: "testing", holds: "helpers for tests only.", uses: &[], tests_use: &[] },
    Crate {
        name: "files",
        holds: "files and folders on disk: looked at before they are read, written whole or not at all, one writer, leftovers of killed processes cleared.",
        uses: &["graph"],
        tests_use: &[],
    },
    Crate {
        name: "import",
        holds: "safetensors and GGUF readers; `config.json` → graph and weight names, one file per architecture.",
        uses: &["graph", "files"],
        tests_use: &["onnx", "reference", "testing"],
    },
    Crate {
        name: "onnx",
        holds: "evaluations of ONNX operators in f32 and f64, by families of operators; one list of all. Reads no files.",
        uses: &["graph"],
        tests_use: &[],
    },
    Crate {
        name: "reference",
        holds: "one file per plain op: the slow, obvious evaluation, generic over f32 and f64. The `cpu` platform and the oracle.",
        uses: &["graph", "onnx"],
        tests_use: &[],
    },
    Crate {
        name: "device",
        holds: "the `Device` trait, limits, features, command lists, findings, the conformance suite, a null device.",
        uses: &["graph"],
        tests_use: &[],
    },
    Crate {
        name: "kernels",
        holds: "the kernel list; one folder per op: planner and WGSL; fusing, choice, specialisation; Graph → Program with memory planning. Talks to no GPU API.",
        uses: &["graph", "files", "device"],
        tests_use: &["reference", "emulator", "wgpu", "testing"],
    },
    Crate {
        name: "wgsl",
        holds: "reads the WGSL of a kernel: parsing, validation, constants, whether it fits its description, places in its file. Makes nothing of it.",
        uses: &["graph", "device"],
        tests_use: &[],
    },
    Crate {
        name: "emulator",
        holds: "a `Device` that executes WGSL on the CPU and can check it while it runs.",
        uses: &["graph", "device", "wgsl"],
        tests_use: &[],
    },
    Crate {
        name: "wgpu",
        holds: "a `Device` over Vulkan, Metal and DX12.",
        uses: &["graph", "device"],
        tests_use: &["emulator", "testing"],
    },
    Crate {
        name: "cfamily",
        holds: "prints WGSL kernels as CUDA C++, HIP and OpenCL C; the device over a driver that compiles them and works in order. Loads no driver.",
        uses: &["graph", "device", "wgsl"],
        tests_use: &["kernels", "testing"],
    },
    Crate {
        name: "cuda",
        holds: "a `Device` over CUDA: driver and compiler (NVRTC) loaded at run time, lists as CUDA graphs.",
        uses: &["graph", "files", "device", "cfamily"],
        tests_use: &["testing"],
    },
    Crate {
        name: "hip",
        holds: "a `Device` over HIP: runtime and compiler (hipRTC) loaded at run time.",
        uses: &["graph", "device", "cfamily"],
        tests_use: &[],
    },
    Crate {
        name: "opencl",
        holds: "a `Device` over OpenCL, loaded at run time.",
        uses: &["graph", "device", "cfamily"],
        tests_use: &["kernels", "emulator", "testing"],
    },
    Crate {
        name: "exec",
        holds: "platforms, replay of single calls, hybrid execution, the recorder hook, sessions.",
        uses: &["graph", "reference", "device", "kernels"],
        tests_use: &["import", "emulator", "wgpu", "testing"],
    },
    Crate {
        name: "rpc",
        holds: "the wire's schema, a client that is a `Device` or runs operators elsewhere, the agent with a process for every session, the hub.",
        uses: &["graph", "files", "device", "kernels", "exec"],
        tests_use: &["reference", "emulator", "testing"],
    },
    Crate {
        name: "broker",
        holds: "what hubs and fleets on several hosts share, kept by NATS JetStream.",
        uses: &["graph", "rpc"],
        tests_use: &["testing"],
    },
    Crate {
        name: "migrate",
        holds: "suites, carving, verdicts, checking, the ledger and Algorithm 1, reports.",
        uses: &["graph", "files", "reference", "device", "kernels", "exec"],
        tests_use: &["import", "emulator", "wgpu", "testing"],
    },
    Crate {
        name: "cause",
        holds: "named hypotheses for a wrong node call, each predicting the wrong values; patterns of wrong elements. Runs no platform.",
        uses: &["graph", "reference", "exec", "migrate"],
        tests_use: &["testing"],
    },
    Crate {
        name: "diagnose",
        holds: "every faulty operator and every fault between operators in one run, with cause and harm.",
        uses: &["graph", "reference", "device", "exec", "migrate", "cause"],
        tests_use: &["import", "kernels", "emulator", "wgpu", "testing"],
    },
    Crate {
        name: "reduce",
        holds: "a failing call shrunk to a standalone reproducer.",
        uses: &["graph", "files", "import", "reference", "device", "kernels", "exec", "migrate"],
        tests_use: &["emulator", "wgpu", "testing"],
    },
    Crate {
        name: "bugs",
        holds: "mutants of kernels and programs, the bench that diagnosis is measured with, the score of suites.",
        uses: &["graph", "reference", "device", "kernels", "exec", "migrate", "cause", "diagnose"],
        tests_use: &["import", "emulator", "testing"],
    },
    Crate {
        name: "constraint",
        holds: "the form that a request asks for, and which tokens it allows next; also built as the WebAssembly module of sites.",
        uses: &["graph"],
        tests_use: &[],
    },
    Crate {
        name: "engine",
        holds: "tokenizer, chat templates, sampling, generation, serving of many requests at once.",
        uses: &["graph", "files", "import", "exec", "constraint"],
        tests_use: &["testing", "device"],
    },
    Crate {
        name: "server",
        holds: "The APIs of OpenAI and Anthropic over HTTP on a model that the engine runs.",
        uses: &["graph", "constraint", "engine"],
        tests_use: &[],
    },
    Crate {
        name: "jobs",
        holds: "the long jobs as plain data, which the command and Python run alike: carve, check, migrate, diagnose, tune, measure, dry runs, fleets; programs on devices (`runtime`). The only crate that sees every backend.",
        uses: &[
            "graph",
            "files",
            "import",
            "reference",
            "device",
            "kernels",
            "emulator",
            "wgpu",
            "cuda",
            "hip",
            "opencl",
            "rpc",
            "broker",
            "exec",
            "migrate",
            "cause",
            "diagnose",
            "reduce",
            "bugs",
            "engine",
            "server",
        ],
        tests_use: &["testing"],
    },
    Crate {
        name: "tapml",
        holds: "the facade and the only stable Rust API: names of other crates and nothing of its own; cargo features choose backends.",
        uses: &[
            "graph", "files", "import", "device", "kernels", "rpc", "broker", "exec", "migrate", "diagnose",
            "reduce", "bugs", "engine", "server", "jobs",
        ],
        tests_use: &[],
    },
    Crate {
        name: "c",
        holds: "the C library: an agent in the process that loads it, with a header, for apps on phones.",
        uses: &["tapml"],
        tests_use: &["testing"],
    },
    Crate {
        name: "cli",
        holds: "the `tapml` command, one file per subcommand.",
        uses: &["tapml"],
        tests_use: &["c", "testing"],
    },
    Crate {
        name: "python",
        holds: "the Python package: a thin extension module, the rest in Python. Empty without its feature. Its `agents` run other runtimes and need no extension.",
        uses: &["tapml"],
        tests_use: &[],
    },
];
