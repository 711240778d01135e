//! Models that are large: data beyond 2 GiB of a file, and tens of thousands of nodes.
use super::*;
use std::io::{Seek, SeekFrom, Write};

#[test]
fn data_beyond_two_gibibytes_of_a_file_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let offset = 5u64 << 29;
    // The file has a hole: it takes a few blocks of the disk.
    let mut data = std::fs::File::create(folder.path().join("weights.bin")).unwrap();
    data.set_len(3 << 30).unwrap();
    data.seek(SeekFrom::Start(offset)).unwrap();
    data.write_all(&[5.0f32, 7.0].map(f32::to_le_bytes).concat()).unwrap();
    let mut model = model(vec![node("Add", &["x", "far"], &["y"])]);
    let entry = |key: &str, value: String| StringEntryProto { key: key.into(), value };
    let far = TensorProto {
        name: "far".into(),
        dims: vec![2],
        data_type: 1,
        data_location: 1,
        external_data: vec![entry("location", "weights.bin".into()), entry("offset", offset.to_string())],
        ..TensorProto::default()
    };
    model.graph.as_mut().unwrap().initializer.push(far);
    let path = folder.path().join("model.onnx");
    std::fs::write(&path, model.encode_to_vec()).unwrap();
    let inputs = HashMap::from([("x".to_string(), x())]);
    let traced = File::open(&path).unwrap().trace(&inputs, &mut Small::default()).unwrap();
    assert_eq!(result(&traced), [6.0, 17.0]);
}

#[test]
fn fifty_thousand_nodes_are_a_graph() {
    let count = 50_000;
    let name = |at: usize| {
        if at == 0 {
            "x".into()
        } else if at == count {
            "y".into()
        } else {
            format!("v{at}")
        }
    };
    let nodes = (0..count).map(|at| node("Neg", &[&name(at)], &[&name(at + 1)])).collect();
    let traced = trace_model(&model(nodes));
    assert_eq!(traced.model.graph().nodes().len(), count);
    assert_eq!(result(&traced), [1.0, 10.0]);
}
