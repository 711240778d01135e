//! The header that C sees is made from the Rust code.

use tapml_testing::{expect_file, root};

#[test]
fn the_header_is_that_of_the_code() {
    let mut config = cbindgen::Config {
        language: cbindgen::Language::C,
        include_guard: Some("TAPML_AGENT_H".into()),
        header: Some(
            "/* An agent of TapML in this process. `docs/guide/phones.md` says how it is built and used. */"
                .into(),
        ),
        no_includes: true,
        sys_includes: vec!["stdint.h".into()],
        cpp_compat: true,
        documentation_style: cbindgen::DocumentationStyle::C99,
        ..Default::default()
    };
    config.export.include = vec!["TapmlAgent".into()];
    let source = root().join("bindings/c/src");
    let builder = cbindgen::Builder::new().with_config(config);
    let header = builder.with_src(source.join("lib.rs")).with_src(source.join("serving.rs")).generate();
    let mut text = Vec::new();
    match header {
        Ok(header) => header.write(&mut text),
        Err(error) => panic!("cbindgen: {error}"),
    }
    expect_file("bindings/c/include/tapml_agent.h", &String::from_utf8_lossy(&text));
}
