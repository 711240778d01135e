//! Image processors against Transformers', and hostile images.

use super::*;
use serde_json::json;
use tapml_import::safetensors::File;

/// A layout of images that are not cut.
const WHOLE: Layout = Layout::Whole { rows: 1 };

fn processor(config: serde_json::Value) -> Result<ImageProcessor> {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("preprocessor_config.json"), config.to_string()).unwrap();
    ImageProcessor::open(dir.path(), WHOLE)
}

#[test]
fn images_are_those_of_transformers() {
    for name in ["llava_tiny", "llava_siglip_tiny"] {
        let dir = tapml_testing::golden(name);
        let processor = ImageProcessor::open(&dir, WHOLE).unwrap();
        let found = processor.file(&dir.join("image.png")).unwrap().values;
        let expected = File::open(&dir.join("golden.safetensors")).unwrap().tensor("pixels").unwrap();
        assert_eq!(found.shape(), expected.shape());
        let plane = found.len() / 3;
        for (i, (found, expected)) in found.to_f64().iter().zip(expected.to_f64()).enumerate() {
            // One step of 8 bits after the normalisation.
            let step = processor.rescale / processor.normal[i / plane][1];
            assert!(
                (found - expected).abs() <= step + 1e-6,
                "{name}, value {i}: {found}, expected {expected}"
            );
        }
    }
}

#[test]
fn crops_are_those_of_their_authors() {
    let dir = tapml_testing::golden("phi3_v_tiny");
    let processor = ImageProcessor::open(&dir, Layout::Crops { most: 8, pixels: 28, side: 2 }).unwrap();
    let found = processor.file(&dir.join("image.png")).unwrap();
    let file = File::open(&dir.join("golden.safetensors")).unwrap();
    let (expected, parts) = (file.tensor("pixels").unwrap(), file.tensor("parts").unwrap().to_f64());
    assert_eq!((found.parts, found.values.shape()), ([2, 3], expected.shape()));
    assert_eq!(parts, [2.0, 3.0]);
    let plane = expected.len() / 3;
    for (i, (found, expected)) in found.values.to_f64().iter().zip(expected.to_f64()).enumerate() {
        // One step of 8 bits after the normalisation, which the view of the whole may stretch a little.
        let step = processor.rescale / processor.normal[i / plane][1];
        assert!((found - expected).abs() <= 1.3 * step, "value {i}: {found}, expected {expected}");
    }
}

#[test]
fn sizes_are_read_in_every_spelling() {
    let normal = json!({"do_normalize": false});
    let with = |more: serde_json::Value| {
        let mut config = normal.clone();
        config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        processor(config)
    };
    let older =
        with(json!({"feature_extractor_type": "CLIPFeatureExtractor", "size": 8, "crop_size": 6})).unwrap();
    assert_eq!((older.resize, older.crop), (Some((ImageSize::Shortest(8), Filter::Bicubic)), Some([6, 6])));
    let both = with(json!({"size": {"height": 5, "width": 7}, "resample": 2})).unwrap();
    assert_eq!((both.resize, both.crop), (Some((ImageSize::Exact([5, 7]), Filter::Bilinear)), None));
    assert_eq!(ImageSize::Shortest(336).for_image([480, 640]).unwrap(), [336, 448]);
    assert_eq!(ImageSize::Shortest(336).for_image([641, 480]).unwrap(), [448, 336]);

    let fails = |more, text: &str| {
        let error = with(more).unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
    };
    fails(json!({"size": 8, "resample": 0}), "filter 0");
    fails(json!({"size": {"height": 0, "width": 7}}), "a whole number from 1");
    fails(json!({"size": 8, "image_processor_type": "LlavaNextImageProcessor"}), "`LlavaNextImageProcessor`");
    fails(json!({"size": 8, "do_pad": true}), "padding");
    fails(json!({"size": 8, "do_normalize": true, "image_mean": [0.5]}), "a list of 3 numbers");
    let error = ImageProcessor::open(Path::new("/nonexistent"), WHOLE).unwrap_err().to_string();
    assert!(error.contains("no preprocessor_config.json"), "{error}");
}

/// A PNG of these sides and nothing in it.
fn png(width: u32, height: u32) -> Vec<u8> {
    let mut file = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR".to_vec();
    file.extend(width.to_be_bytes().into_iter().chain(height.to_be_bytes()).chain([8, 2, 0, 0, 0]));
    file.extend([0; 4]);
    file
}

#[test]
fn hostile_images_are_refused() {
    let processor = processor(json!({"size": 8, "do_normalize": false})).unwrap();
    let whole = std::fs::read(tapml_testing::golden("llava_tiny").join("image.png")).unwrap();
    for length in (0..whole.len()).step_by(61) {
        assert!(processor.bytes(&whole[..length]).is_err(), "cut to {length} bytes");
    }
    for bytes in [
        png(u32::MAX, u32::MAX),
        png(1 << 15, 1),
        png(1 << 14, 1 << 14),
        png(0, 4),
        b"GIF89a".to_vec(),
        b"text".to_vec(),
    ] {
        let error = processor.bytes(&bytes).unwrap_err();
        assert!(error.hint().is_some_and(|hint| hint.contains("PNG, JPEG or WebP")), "{error}");
    }
    for at in 0..whole.len().min(400) {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x40;
        let _ = processor.bytes(&damaged);
    }
}

#[test]
fn a_narrow_image_costs_no_more_than_its_middle() {
    let processor = processor(json!({"size": 64, "crop_size": 64, "do_normalize": false})).unwrap();
    let line = Rgb { width: 1 << 14, height: 1, samples: vec![200; 3 << 14] };
    let kept = processor.resample(&line).unwrap();
    assert_eq!((kept.height, kept.width), (64, 64));
    assert!(kept.samples.iter().all(|&v| v == 200));
    let whole = ImageProcessor { crop: None, ..processor }.resample(&line).unwrap_err().to_string();
    assert!(whole.contains("64×1048576 pixels of 1×16384"), "{whole}");
}
