//! The text of two kernels in every dialect, as it is in the tree, and what errors and lines point at.
#![allow(clippy::unwrap_used)]

mod common;

use tapml_cfamily::{Arg, Dialect, PrintOptions, print};
use tapml_graph::{DType, ErrorKind};

/// The part of the text that is the kernel's own: the preludes are files of their own.
fn own_text(text: &str) -> &str {
    text.find("typedef struct").map_or(text, |at| &text[at..])
}

#[test]
fn texts_are_as_stored() {
    let norm = common::built_in("rms_norm", DType::F16);
    for (name, desc) in [("rms_norm", &norm), ("features", &common::features())] {
        // HIP differs from CUDA in the prelude alone.
        for (dialect, end) in [(Dialect::Cuda, "cu"), (Dialect::Hip, "cu"), (Dialect::OpenCl, "cl")] {
            if dialect == Dialect::OpenCl && desc.needs_subgroups {
                let error = print(desc, &common::device(), PrintOptions::new(dialect)).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
                assert!(error.to_string().contains("features.wgsl:"), "{error}");
                continue;
            }
            let printed = print(desc, &common::device(), PrintOptions::new(dialect)).unwrap();
            tapml_testing::expect_file(
                &format!("crates/cfamily/tests/golden/{name}.{end}"),
                own_text(&printed.text),
            );
        }
    }
}

#[test]
fn lines_lead_back_to_the_wgsl() {
    let desc = common::features();
    let printed = print(&desc, &common::device(), PrintOptions::new(Dialect::Cuda)).unwrap();
    assert_eq!(printed.lines.len(), printed.text.lines().count());
    let at = printed
        .text
        .lines()
        .position(|line| line.contains("atomicAdd") && line.contains("table_"))
        .map(|i| i + 1);
    let at = at.or_else(|| {
        printed
            .text
            .lines()
            .position(|line| line.contains("ATOMIC_ADD(") && !line.contains("#define"))
            .map(|i| i + 1)
    });
    let place = printed.locate(at.unwrap() as u32).unwrap();
    assert!(place.source.contains("atomicAdd(&table.count"), "{place:?}");
    assert_eq!(
        printed.args,
        [Arg::Pointer(0), Arg::Bytes(0), Arg::Pointer(1), Arg::Bytes(1), Arg::Pointer(2)]
    );
}

/// A kernel whose `subgroupAdd` stands in this text.
fn adding_kernel(body: &str) -> tapml_device::KernelDesc {
    let text = format!(
        "@group(0) @binding(0) var<storage, read_write> y: array<f32>;\n@group(0) @binding(1) var<storage> n: array<u32>;\n\
         fn total(v: f32, twice: bool) -> f32 {{\n    if twice {{ return 2.0 * subgroupAdd(v); }}\n    return v;\n}}\n\
         @compute @workgroup_size(64)\nfn main(@builtin(local_invocation_index) lane: u32, \
         @builtin(workgroup_id) group: vec3<u32>) {{\n    var sum = f32(lane);\n{body}\n    y[lane] = sum;\n}}\n"
    );
    let features = common::features();
    tapml_device::KernelDesc {
        source: tapml_device::Source { text, file: "adding.wgsl".into(), ..features.source.clone() },
        bindings: vec![tapml_device::BindingKind::ReadWrite, tapml_device::BindingKind::Read],
        needs_f16: false,
        workgroup_memory: 0,
        ..features
    }
}

#[test]
fn emulated_subgroup_operations_stand_where_the_whole_workgroup_is() {
    let options = PrintOptions { emulate_subgroups: true, ..PrintOptions::new(Dialect::OpenCl) };
    let print = |body: &str| print(&adding_kernel(body), &common::device(), options);
    let together = [
        "    for (var i = 0u; i < n[0]; i++) { sum = subgroupAdd(sum); if n[1] == i { break; } }",
        "    if lane < 7u { sum = 1.0; }\n    if group.x < n[0] { sum = total(sum, n[1] == 2u); }",
        "    var i = 0u;\n    loop { if i > 3u { break; } for (var k = lane; k < 9u; k++) { sum += 1.0; } sum = subgroupMax(sum); i++; }",
    ];
    for body in together {
        let printed = print(body).unwrap_or_else(|e| panic!("{e}\n{body}"));
        assert!(printed.text.contains("subgroup_share(words, own)"), "{}", printed.text);
    }
    let apart = [
        "    if lane < 7u { sum = subgroupAdd(sum); }",
        "    for (var i = lane; i < 99u; i += 64u) { sum = subgroupAdd(sum); }",
        "    sum = total(sum, lane == 2u);",
        "    if lane == 9u { return; }\n    sum = subgroupAdd(sum);",
        "    for (var i = 0u; i < n[0]; i++) { if sum > 3.0 { continue; } sum = subgroupAdd(sum); }",
        "    for (var i = 0u; i < 4u; i++) { sum = subgroupAdd(sum); if y[i] > 0.0 { break; } }",
        "    var limit = 3u;\n    if lane == 1u { limit = 4u; }\n    for (var i = 0u; i < limit; i++) { sum = subgroupAdd(sum); }",
    ];
    for body in apart {
        let error = print(body).err().unwrap_or_else(|| panic!("{body}"));
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains("adding.wgsl:"), "{error}");
        assert!(error.to_string().contains("perhaps not all invocations"), "{error}");
    }
}
