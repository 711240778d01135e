//! Images in messages: data URLs, whose files are read here and decoded where the model is known.

use crate::error::ApiError;
use crate::fields::Parsed;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use base64::engine::{DecodePaddingMode, Engine};

/// Most images of one request.
const MOST: usize = 64;
/// Characters of a URL that an error tells.
const MOST_CHARACTERS: usize = 40;
/// Some clients leave the padding out.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The files of a request's images, in the order of its messages.
pub type ImageFiles = Vec<Vec<u8>>;

/// The file in a data URL, which stands at `place` of the request.
///
/// # Errors
/// If it is another URL, since none is fetched, or not of an image in base64.
pub fn read_url(place: &str, url: &str) -> Parsed<Vec<u8>> {
    let form = "expected `data:image/png;base64,` (or jpeg, webp) and the file in base64";
    let wrong = |found: String| {
        Err(ApiError::bad_field(place, format!("`{place}`: {form}, found {found}"))
            .with_code("invalid_image"))
    };
    let told = || url.chars().take(MOST_CHARACTERS).collect::<String>();
    let scheme = url.get(..5).filter(|scheme| scheme.eq_ignore_ascii_case("data:"));
    let Some(rest) = scheme.and_then(|_| url.get(5..)) else {
        let text = format!(
            "`{place}` is the URL `{}`; images are not fetched: {form}, which is the image itself",
            told()
        );
        return Err(ApiError::unsupported_field(place, text).with_code("invalid_image_url"));
    };
    let Some((head, data)) = rest.split_once(',') else { return wrong(format!("no comma in `{}`", told())) };
    let mut words = head.split(';');
    let kind = words.next().unwrap_or_default();
    if !kind.is_empty() && !kind.to_ascii_lowercase().starts_with("image/") {
        return wrong(format!("the type `{}`", kind.chars().take(MOST_CHARACTERS).collect::<String>()));
    }
    if !words.any(|word| word.trim().eq_ignore_ascii_case("base64")) {
        return wrong(format!("no word `base64` in `{}`", told()));
    }
    match BASE64.decode(data.trim()) {
        Ok(bytes) if bytes.is_empty() => wrong("an empty file".into()),
        Ok(bytes) => Ok(bytes),
        Err(error) => wrong(format!("no base64: {error}")),
    }
}

/// The data URL of a file, whose kind its first bytes tell.
pub fn data_url(file: &[u8]) -> String {
    let kind = match file {
        [0xff, 0xd8, ..] => "jpeg",
        [b'R', b'I', b'F', b'F', ..] => "webp",
        _ => "png",
    };
    format!("data:image/{kind};base64,{}", BASE64.encode(file))
}

/// Adds an image to those of a request.
///
/// # Errors
/// If there are as many as there may be.
pub fn add(images: &mut ImageFiles, file: Vec<u8>) -> Parsed<()> {
    if images.len() == MOST {
        let text = format!("`messages` has more than {MOST} images, which is the most; leave older ones out");
        return Err(ApiError::bad_field("messages", text).with_code("too_many_images"));
    }
    images.push(file);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_from_its_own_url() {
        for (file, kind) in [(&b"\x89PNG"[..], "png"), (b"\xff\xd8\xff", "jpeg"), (b"RIFF....WEBP", "webp")] {
            let url = data_url(file);
            assert!(url.starts_with(&format!("data:image/{kind};base64,")), "{url}");
            assert_eq!(read_url("x", &url).expect("a data URL"), file);
        }
    }

    #[test]
    fn data_urls_are_read() {
        for url in ["data:image/png;base64,aGk=", "DATA:image/PNG;charset=x;BASE64,aGk", "data:;base64,aGk="]
        {
            assert_eq!(read_url("x", url).expect("a data URL"), b"hi");
        }
        for (url, told) in [
            ("http://127.0.0.1/a.png", "images are not fetched"),
            ("file:///etc/passwd", "images are not fetched"),
            ("é", "images are not fetched"),
            ("", "images are not fetched"),
            ("data:image/png;base64", "no comma"),
            ("data:image/png,aGk=", "no word `base64`"),
            ("data:text/html;base64,aGk=", "the type `text/html`"),
            ("data:image/png;base64,", "an empty file"),
            ("data:image/png;base64,a\u{e9}", "no base64"),
            ("data:image/png;base64,aGk=aGk=", "no base64"),
        ] {
            let error = read_url("x", url).expect_err("no data URL").body().to_string();
            assert!(error.contains(told), "{url}: {error}");
        }
    }
}
