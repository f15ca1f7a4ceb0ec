//! The body of a request that does not say how long it is, or that is too long.

use js_sys::futures::JsFuture;
use js_sys::{IteratorNext, Uint8Array};
use tidegate_http::{BodyError, MAX_BODY_BYTES, MAX_DRAINED_BYTES};
use wasm_bindgen::prelude::wasm_bindgen;
use wasm_bindgen::{JsCast as _, JsValue};
use web_sys::{ReadableStreamDefaultReader, Request};

use crate::isolate::{Isolate, size};

#[wasm_bindgen]
impl Isolate {
    /// Reads a body. Returns its text, or how many bytes were read of a body that is too long.
    ///
    /// # Errors
    /// Throws what the runtime throws if the body does not arrive whole.
    pub async fn read(request: Request) -> Result<JsValue, JsValue> {
        Ok(match read(&request, MAX_DRAINED_BYTES).await? {
            Err(length) => size(length).into(),
            // as `Request.text` reads it: a text that may stand for other bytes is refused later
            Ok(bytes) => {
                let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
                String::from_utf8_lossy(bytes).as_ref().into()
            }
        })
    }
}

/// A copy of a body, of which no more is read than a server accepts. The request keeps its body.
pub(crate) async fn copied(request: &Request) -> Result<Vec<u8>, BodyError> {
    let copy = request.clone().map_err(|_| BodyError::Incomplete)?;
    let bytes = read(&copy, MAX_BODY_BYTES).await.map_err(|_| BodyError::Incomplete)?;
    bytes.map_err(BodyError::TooLarge)
}

/// The bytes of a body, or how many were read of a body that is too long. `most` of them are read.
async fn read(request: &Request, most: usize) -> Result<Result<Vec<u8>, usize>, JsValue> {
    let Some(body) = request.body() else { return Ok(Ok(Vec::new())) };
    let reader: ReadableStreamDefaultReader = body.get_reader().unchecked_into();
    let (mut bytes, mut length) = (Vec::new(), 0_usize);
    while let Some(chunk) = next(&reader).await? {
        let chunk = chunk.to_vec();
        length = length.saturating_add(chunk.len());
        if length <= MAX_BODY_BYTES {
            bytes.extend(chunk);
        }
        if length > most {
            drop(reader.cancel());
            break;
        }
    }
    Ok(if length > MAX_BODY_BYTES { Err(length) } else { Ok(bytes) })
}

/// The next bytes; `None` at the end.
pub(crate) async fn next(
    reader: &ReadableStreamDefaultReader,
) -> Result<Option<Uint8Array>, JsValue> {
    let next: IteratorNext = JsFuture::from(reader.read()).await?.unchecked_into();
    Ok((!next.done()).then(|| next.value().unchecked_into()))
}
