//! Verifies the signatures of tokens by WebCrypto. `tidegate_http` has read the token and allowed its algorithm.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use js_sys::futures::JsFuture;
use js_sys::{Array, JSON, Object, Reflect, Uint8Array};
use tidegate_gate::SignatureAlgorithm;
use tidegate_http::Verify;
use wasm_bindgen::{JsCast as _, JsValue};
use web_sys::{CryptoKey, SubtleCrypto, WorkerGlobalScope};
use worker::Env;

use crate::log::log_error;
use crate::variables::{found, value};

/// The most keys of an algorithm: each may have to be tried.
const MOST_KEYS: usize = 16;

/// The shortest secret of HS256, in bits (RFC 7518 §3.2).
const SHORTEST_SECRET: f64 = 256.0;

/// A key that verifies signatures.
struct Key {
    /// Its name, if it has one.
    id: JsValue,
    key: CryptoKey,
}

/// Why keys cannot be used, without a part of them.
type Fault = String;

/// The keys of one algorithm in the text of one binding.
type Keys = Rc<Vec<Key>>;

thread_local! {
    /// By the name of the algorithm and the text.
    static IMPORTED: RefCell<BTreeMap<String, Keys>> = const { RefCell::new(BTreeMap::new()) };
}

/// How a key of an algorithm is written in a JWK, and what WebCrypto calls the algorithm.
struct Kind {
    key_type: &'static str,
    parts: &'static [&'static str],
    /// Names and values of the algorithm's fields.
    algorithm: &'static [(&'static str, &'static str)],
}

const fn kind(algorithm: SignatureAlgorithm) -> Kind {
    match algorithm {
        SignatureAlgorithm::Hs256 => Kind {
            key_type: "oct",
            parts: &["k"],
            algorithm: &[("name", "HMAC"), ("hash", "SHA-256")],
        },
        SignatureAlgorithm::Rs256 => Kind {
            key_type: "RSA",
            parts: &["n", "e"],
            algorithm: &[("name", "RSASSA-PKCS1-v1_5"), ("hash", "SHA-256")],
        },
        SignatureAlgorithm::Es256 => Kind {
            key_type: "EC",
            parts: &["crv", "x", "y"],
            algorithm: &[("name", "ECDSA"), ("namedCurve", "P-256"), ("hash", "SHA-256")],
        },
    }
}

/// Whether the signature of a token holds; `None` if the keys are missing or cannot be used, for then a right signature
/// cannot be told from a wrong one.
pub(crate) async fn is_verified(token: &Verify, env: &Env) -> Option<bool> {
    match holds(token, env).await {
        Ok(holds) => Some(holds),
        Err(fault) => {
            IMPORTED.with_borrow_mut(BTreeMap::clear);
            log_error(&format!("jwt: {}", token.keys), &fault.into());
            None
        }
    }
}

async fn holds(token: &Verify, env: &Env) -> Result<bool, Fault> {
    let kind = kind(token.algorithm);
    let text = text(&value(env, &token.keys))?;
    let name = format!("{} {text}", token.algorithm.name());
    let known = IMPORTED.with_borrow(|imported| imported.get(&name).cloned());
    let keys = match known {
        Some(keys) => keys,
        None => {
            let keys = Keys::new(import(&text, token.algorithm).await?);
            IMPORTED.with_borrow_mut(|imported| imported.insert(name, Rc::clone(&keys)));
            keys
        }
    };
    let Ok(signature) = URL_SAFE_NO_PAD.decode(&token.signature) else { return Ok(false) };
    // not the bytes themselves, because a promise must not look into WebAssembly's memory
    let [signature, signed] = [&signature[..], token.signed.as_bytes()].map(Uint8Array::from);
    let algorithm = object(kind.algorithm.iter().map(|(name, value)| (*name, (*value).into())));
    for Key { id, key } in &*keys {
        let is_named = match &token.key_id {
            None => true,
            Some(wanted) => id.is_undefined() || id.as_string().as_ref() == Some(wanted),
        };
        if !is_named {
            continue;
        }
        let verified = subtle()?
            .verify_with_object_and_js_u8_array_and_js_u8_array(
                &algorithm, key, &signature, &signed,
            )
            .map_err(message)?;
        if JsFuture::from(verified).await.map_err(message)?.is_truthy() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The text of a secret. The text of any other value, such as `[object Object]`, is no secret.
fn text(secret: &JsValue) -> Result<String, Fault> {
    let found = match secret.as_string() {
        Some(text) if !text.trim().is_empty() => return Ok(text),
        Some(_) => "an empty text".to_owned(),
        None if secret.is_undefined() => "no binding".to_owned(),
        None => found(secret),
    };
    Err(format!("expected a text, found {found}"))
}

/// The keys of an algorithm in the text of a binding. A key is used with the one algorithm of its type alone. Otherwise a
/// public key could be taken for a secret, and everybody could sign.
async fn import(text: &str, algorithm: SignatureAlgorithm) -> Result<Vec<Key>, Fault> {
    let Kind { key_type, parts, algorithm: fields } = kind(algorithm);
    let name = algorithm.name();
    let is =
        |jwk: &JsValue, part, expected| field(jwk, part).as_string().as_deref() == Some(expected);
    let may_be = |jwk: &JsValue, part, expected| {
        field(jwk, part).is_null_or_undefined() || is(jwk, part, expected)
    };
    let mut all = jwks(text)?;
    all.retain(|jwk| {
        is(jwk, "kty", key_type) && may_be(jwk, "alg", name) && may_be(jwk, "use", "sig")
    });
    match all.len() {
        0 => return Err(format!("expected a key for {name}, found none")),
        1..=MOST_KEYS => {}
        count => {
            return Err(format!("expected at most {MOST_KEYS} keys for {name}, found {count}"));
        }
    }
    let how = object(fields.iter().map(|(name, value)| (*name, (*value).into())));
    let mut keys = Vec::with_capacity(all.len());
    for jwk in all {
        let needed = ["kty"].iter().chain(parts).map(|part| (*part, field(&jwk, part)));
        let usages = Array::of1(&"verify".into());
        let imported = subtle()?
            .import_key_with_object("jwk", &object(needed), &how, false, &usages)
            .map_err(message)?;
        let imported = JsFuture::from(imported).await.map_err(message)?;
        let key: CryptoKey = imported.unchecked_into();
        let bits = key.algorithm().ok().and_then(|own| field(&own, "length").as_f64());
        if let Some(bits) = bits.filter(|bits| *bits < SHORTEST_SECRET) {
            let bytes = crate::clock::whole(bits) / 8;
            return Err(format!("expected a secret of at least 32 bytes, found {bytes}"));
        }
        keys.push(Key { id: field(&jwk, "kid"), key });
    }
    Ok(keys)
}

/// A set of keys, one key, or the text of a secret.
fn jwks(text: &str) -> Result<Vec<JsValue>, Fault> {
    if !text.trim_start().starts_with('{') {
        let secret = URL_SAFE_NO_PAD.encode(text);
        return Ok(vec![object([("kty", "oct".into()), ("k", secret.into())]).into()]);
    }
    // the error of the runtime would show a part of the secret
    let parsed = JSON::parse(text)
        .map_err(|_| "expected JSON, found another text that begins with `{`".to_owned())?;
    let keys = field(&parsed, "keys");
    if keys.is_null_or_undefined() {
        return Ok(vec![parsed]);
    }
    let keys = keys.dyn_into::<Array>().ok().map(|keys| keys.to_vec());
    keys.filter(|keys| keys.iter().all(JsValue::is_object))
        .ok_or_else(|| "expected a list `keys` of objects, found something else".to_owned())
}

fn subtle() -> Result<SubtleCrypto, Fault> {
    let scope: WorkerGlobalScope = js_sys::global().unchecked_into();
    Ok(scope.crypto().map_err(message)?.subtle())
}

fn field(of: &JsValue, name: &str) -> JsValue {
    Reflect::get(of, &name.into()).unwrap_or_default()
}

fn object(fields: impl IntoIterator<Item = (&'static str, JsValue)>) -> Object {
    let object = Object::new();
    for (name, value) in fields {
        let _ = Reflect::set(&object, &name.into(), &value); // a plain object takes any field
    }
    object
}

/// The message of an error, as of JavaScript's `error.message`.
fn message(error: JsValue) -> Fault {
    field(&error, "message").as_string().unwrap_or_default()
}
