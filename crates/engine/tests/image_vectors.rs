//! What image processors make of small pictures, for `web/test/image.test.ts`: the page of a site must make the same of them, to the last
//! bit.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use image::{ExtendedColorType, ImageEncoder};
use serde_json::{Value, json};
use tapml_engine::ImageProcessor;
use tapml_import::Layout;

/// What a processor makes of a picture.
fn vector(config: Value, [height, width]: [usize; 2]) -> Value {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("preprocessor_config.json"), config.to_string()).unwrap();
    let processor = ImageProcessor::open(folder.path(), Layout::Whole { rows: 1 }).unwrap();
    // Edges, flat places and noise.
    let sample = |i: usize| match i / 7 % 3 {
        0 => (i.wrapping_mul(2_654_435_761) >> 13) as u8,
        1 => 255 * (i / 5 % 2) as u8,
        _ => (i * 9 % 256) as u8,
    };
    let samples: Vec<u8> = (0..height * width * 3).map(sample).collect();
    let mut png = Vec::new();
    let encoder = image::codecs::png::PngEncoder::new(&mut png);
    encoder.write_image(&samples, width as u32, height as u32, ExtendedColorType::Rgb8).unwrap();
    let values = processor.bytes(&png).unwrap().values;
    json!({
        "processor": processor,
        "height": height,
        "width": width,
        "samples": samples,
        "made": values.shape()[1..],
        "values": values.to_f32().to_vec(),
    })
}

#[test]
fn a_page_makes_the_same_of_pictures() {
    let of = |size: Value, resample: u32| {
        let (mean, deviation) = ([0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]);
        json!({"size": size, "resample": resample, "image_mean": mean, "image_std": deviation})
    };
    let exact = |height: u32, width: u32| json!({"height": height, "width": width});
    let mut cropped = of(json!({"shortest_edge": 9}), 3);
    cropped["crop_size"] = exact(7, 8);
    let vectors = [
        vector(of(exact(6, 9), 1), [13, 5]),
        vector(of(exact(6, 9), 2), [13, 5]),
        vector(of(exact(6, 9), 3), [13, 5]),
        vector(of(exact(5, 5), 1), [2, 3]),
        vector(of(exact(4, 4), 3), [1, 40]),
        vector(cropped.clone(), [11, 17]),
        vector(cropped, [17, 11]),
        vector(json!({"do_resize": false, "do_rescale": false, "do_normalize": false}), [3, 4]),
        vector(json!({"size": 5, "resample": 2, "rescale_factor": 0.007, "do_normalize": false}), [5, 8]),
    ];
    let lines: Vec<String> = vectors.iter().map(Value::to_string).collect();
    tapml_testing::expect_file("web/test/images.json", &format!("[\n{}\n]\n", lines.join(",\n")));
}
