//! Graphs with an encoder: it runs when an image is given, everywhere alike.
#![allow(clippy::unwrap_used)]

use std::collections::HashMap;
use tapml_emulator::{Emulator, EmulatorOptions};
use tapml_exec::{
    CpuPlatform, DevicePlatform, Hybrid, HybridSide, Image, Interface, NOWHERE, NodeEvent, Observer,
    Overrides, PIXELS, Platform, Session, load,
};
use tapml_graph::{Graph, Model, Result, Symbols, Tensor};

/// Two patches of two pixels, projected, in the place of tokens; the logits of a position also see the one before.
const TEXT: &str = "graph seeing
input pixels: f32[1,2,4]
input ids: u32[n]
input slots: u32[n]
weight table: f32[7,4]
weight projection: f32[4,4]
state past: f32[p,4] -> all
patches: f32[2,4] = patches(pixels) {\"patch\":2,\"dtype\":\"f32\"}
image: f32[2,4] = linear(patches, projection)
words: f32[n,4] = embedding(ids, table) {\"dtype\":\"f32\"}
merged: f32[n,4] = merge_rows(words, image, slots)
all: f32[n+p,4] = append(past, merged)
seen: f32[n,4] = attention(merged, all, all) {\"heads\":1,\"kv_heads\":1,\"head_dim\":4,\"scale\":0.5}
logits: f32[n,7] = linear(seen, table)
output logits = logits
";

fn model() -> Model {
    let values = |count: usize, step: f32| (0..count).map(|i| (i as f32 * step).sin()).collect::<Vec<f32>>();
    let weights = HashMap::from([
        ("table".to_string(), Tensor::from_f32(vec![7, 4], values(28, 1.3)).unwrap()),
        ("projection".to_string(), Tensor::from_f32(vec![4, 4], values(16, 2.1)).unwrap()),
    ]);
    Model::new(Graph::parse(TEXT).unwrap(), weights).unwrap()
}

/// An image in the place of tokens 1 and 2.
fn image() -> Image {
    let pixels = (0..8).map(|i| (i as f32 * 0.7).cos()).collect();
    Image { pixels: Tensor::from_f32(vec![1, 2, 4], pixels).unwrap(), slots: vec![NOWHERE, 0, 1] }
}

fn emulator() -> DevicePlatform {
    let device = Emulator::new(EmulatorOptions::parse("check=all").unwrap()).unwrap();
    DevicePlatform::new(Box::new(device), Overrides::default())
}

const IDS: [u32; 5] = [1, 6, 6, 2, 3];

/// Logits of all positions in steps of these many tokens.
fn logits(platform: &mut dyn Platform, image: Option<Image>, chunk: usize) -> Vec<f32> {
    let mut session = Session::with_chunk(platform, &model(), 8, chunk).unwrap();
    session.look_at(image).unwrap();
    session.forward(&IDS).unwrap().to_f32().into_owned()
}

fn close(a: &[f32], b: &[f32]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-5)
}

#[test]
fn an_image_counts_in_every_step_and_on_every_platform() {
    let seeing = logits(&mut CpuPlatform::new(), Some(image()), 8);
    let blind = logits(&mut CpuPlatform::new(), None, 8);
    assert!(close(&seeing[..7], &blind[..7]) && !close(&seeing[7..14], &blind[7..14]));
    for chunk in [1, 2, 8] {
        assert!(close(&logits(&mut CpuPlatform::new(), Some(image()), chunk), &seeing), "chunks of {chunk}");
        assert!(close(&logits(&mut emulator(), Some(image()), chunk), &seeing), "chunks of {chunk}");
    }
    assert!(close(&logits(&mut emulator(), None, 2), &blind));

    let mut platform = CpuPlatform::new();
    let mut session = Session::new(&mut platform, &model(), 8).unwrap();
    session.look_at(Some(image())).unwrap();
    for _ in 0..2 {
        assert!(close(&session.forward(&IDS).unwrap().to_f32(), &seeing), "the image stays after a reset");
        session.reset().unwrap();
    }
    session.look_at(None).unwrap();
    assert!(close(&session.forward(&IDS).unwrap().to_f32(), &blind));
}

#[test]
fn a_hybrid_keeps_what_the_encoder_gave() {
    let (mut source, mut target) = (CpuPlatform::new(), emulator());
    let interface = Interface::from_graph(model().graph()).unwrap();
    let whole = logits(&mut CpuPlatform::new(), Some(image()), 8);
    for on_target in
        [&["patches"][..], &["linear"], &["merge_rows"], &["patches", "linear", "merge_rows", "append"]]
    {
        let side = |node: &tapml_graph::Node| {
            if on_target.contains(&node.op.name()) { HybridSide::Target } else { HybridSide::Source }
        };
        let capacity = Symbols::np(4, 8);
        let mut hybrid = Hybrid::new(&model(), &mut source, &mut target, &side, &capacity).unwrap();
        for _ in 0..2 {
            let first = hybrid.feed(interface.inputs_at(&IDS[..2], 0, Some(&image())).unwrap()).unwrap();
            let second = hybrid.feed(interface.inputs_at(&IDS[2..], 2, Some(&image())).unwrap()).unwrap();
            let both = [first["logits"].to_f32(), second["logits"].to_f32()].concat();
            assert!(close(&both, &whole), "{on_target:?}");
            hybrid.reset().unwrap();
        }
    }
}

/// Names of the nodes that ran, which must be those of the whole graph.
struct Seen(Vec<String>);

impl Observer for Seen {
    fn node(&mut self, event: &NodeEvent<'_>) -> Result<()> {
        assert_eq!(event.graph.name(), "seeing");
        assert_eq!(event.graph.node(event.id), event.node);
        assert_eq!(event.inputs.len(), event.node.inputs.len());
        self.0.push(event.node.name.clone());
        Ok(())
    }
}

#[test]
fn an_observer_sees_the_encoder_only_when_it_runs() {
    let model = model();
    let interface = Interface::from_graph(model.graph()).unwrap();
    let mut loaded = load(&mut CpuPlatform::new(), &model, &Symbols::np(8, 8)).unwrap();
    for (position, expected) in [(0, 7), (2, 5)] {
        let mut seen = Seen(Vec::new());
        let inputs = interface.inputs_at(&[1, 6], position, Some(&image())).unwrap();
        assert_eq!(inputs.contains_key(PIXELS), position == 0);
        loaded.run(&interface.symbols(2, position), &inputs, Some(&mut seen)).unwrap();
        assert_eq!(seen.0.len(), expected, "{:?}", seen.0);
        assert_eq!(seen.0.contains(&"patches".to_string()), position == 0);
    }
}

#[test]
fn images_that_do_not_fit_are_refused() {
    let mut session = Session::new(&mut CpuPlatform::new(), &model(), 8).unwrap();
    let mut wide = image();
    wide.pixels = Tensor::from_f32(vec![1, 2, 5], vec![0.0; 10]).unwrap();
    let error = session.look_at(Some(wide)).unwrap_err().to_string();
    assert!(error.contains("f32[1, 2, 4], found f32[1, 2, 5]"), "{error}");
    let error = session.look_at(Some(Image { slots: vec![2], ..image() })).unwrap_err().to_string();
    assert!(error.contains("slot 2") && error.contains("2 rows"), "{error}");

    let blind = TEXT.replace("input pixels: f32[1,2,4]\n", "weight pixels: f32[1,2,4]\n");
    let error = Interface::from_graph(&Graph::parse(&blind).unwrap()).unwrap_err().to_string();
    assert!(error.contains("come together"), "{error}");
}
