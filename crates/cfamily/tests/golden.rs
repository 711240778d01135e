//! The text of two kernels in every dialect, as it is in the tree, and what errors and lines point at.
#![allow(clippy::unwrap_used)]

mod common;

use tapml_cfamily::{Arg, Dialect, Options, print};
use tapml_graph::{DType, ErrorKind};

/// The part of the text that is the kernel's own: the preludes are files of their own.
fn own(text: &str) -> &str {
    text.find("typedef struct").map_or(text, |at| &text[at..])
}

#[test]
fn texts_are_as_stored() {
    let norm = common::built_in("rms_norm", DType::F16);
    for (name, desc) in [("rms_norm", &norm), ("features", &common::features())] {
        for (dialect, end) in [(Dialect::Cuda, "cu"), (Dialect::Hip, "hip"), (Dialect::OpenCl, "cl")] {
            if dialect == Dialect::OpenCl && desc.needs_subgroups {
                let error = print(desc, &common::device(), Options::new(dialect)).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
                assert!(error.to_string().contains("features.wgsl:"), "{error}");
                continue;
            }
            let printed = print(desc, &common::device(), Options::new(dialect)).unwrap();
            tapml_testing::expect_file(
                &format!("crates/cfamily/tests/golden/{name}.{end}"),
                own(&printed.text),
            );
        }
    }
}

#[test]
fn lines_lead_back_to_the_wgsl() {
    let desc = common::features();
    let printed = print(&desc, &common::device(), Options::new(Dialect::Cuda)).unwrap();
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
