//! The calls of other Workers, as requests to the HTTP API.

use js_sys::{JSON, JsString, Object, Reflect, TypeError};
use wasm_bindgen::prelude::wasm_bindgen;
use wasm_bindgen::{JsCast as _, JsValue};
use web_sys::{Headers, Request, RequestInit};
use worker::Env;

use crate::isolate::{Isolate, RPC};
use crate::variables::value;

/// The field of a call that stands for the header `Idempotency-Key`.
const IDEMPOTENCY_KEY: &str = "idempotency_key";

#[wasm_bindgen]
extern "C" {
    /// Throws if the text is not Unicode.
    #[wasm_bindgen(catch, js_name = encodeURIComponent)]
    fn encode(value: &JsValue) -> Result<String, JsValue>;
}

#[wasm_bindgen]
impl Isolate {
    /// The request that stands for a call, with what the caller has given. The calls need no more than the right to decide.
    ///
    /// # Errors
    /// Throws a `TypeError` if a field that becomes a part of the URL is not a text.
    pub fn rpc(call: &str, given: &JsValue, env: &Env) -> Result<Request, JsValue> {
        let field = |name| escaped(name, &field(given, name));
        let (method, target, body) = match call {
            "check" => ("POST", "check".to_owned(), given.clone()),
            "acquire" => ("POST", "leases".to_owned(), given.clone()),
            "refund" => ("POST", "refund".to_owned(), given.clone()),
            "reserve" => ("POST", "reservations".to_owned(), given.clone()),
            "commit" => {
                let target = format!("reservations/{}/commit", field("id")?);
                ("POST", target, without(given, "id")?)
            }
            "peek" => {
                let (policy, key) = (field("policy")?, field("key")?);
                let target = format!("keys/{policy}/{key}?{}", query(given, ["cost", "class"])?);
                ("GET", target, JsValue::UNDEFINED)
            }
            "renew" => {
                let target = format!("leases/{}", field("lease")?);
                ("PUT", target, without(given, "lease")?)
            }
            _ => {
                let (lease, policy, key) = (field("lease")?, field("policy")?, field("key")?);
                let target = format!("leases/{lease}?policy={policy}&key={key}");
                ("DELETE", target, JsValue::UNDEFINED)
            }
        };
        let init = RequestInit::new();
        init.set_method(method);
        let headers = headers(env)?;
        let body = match self::field(&body, IDEMPOTENCY_KEY).as_string() {
            Some(key) if method == "POST" => {
                headers.set("idempotency-key", &key)?;
                without(&body, IDEMPOTENCY_KEY)?
            }
            _ => body,
        };
        init.set_headers(&headers.into());
        if let Some(text) = json(&body)? {
            init.set_body(&text.into());
        }
        // the scheme says that the request is for the API, whatever routes match; no upstream gets the token
        Request::new_with_str_and_init(&format!("{RPC}tidegate/v1/{target}"), &init)
    }
}

/// A copy without the field that has become a part of the URL.
fn without(given: &JsValue, name: &str) -> Result<JsValue, JsValue> {
    let rest = Object::assign(&Object::new(), given.unchecked_ref());
    Reflect::delete_property(&rest, &name.into())?;
    Ok(rest.into())
}

fn headers(env: &Env) -> Result<Headers, JsValue> {
    let headers = Headers::new()?;
    let tokens = ["TIDEGATE_TOKEN", "TIDEGATE_ADMIN_TOKEN"].map(|name| value(env, name));
    if let Some(token) = tokens.iter().find(|token| token.is_truthy()) {
        headers.set("authorization", &format!("Bearer {}", JsString::from(token.clone())))?;
    }
    Ok(headers)
}

/// The text of a body, which must not contain the character that stands for bytes which are no text.
fn json(body: &JsValue) -> Result<Option<String>, JsValue> {
    let text = JsValue::from(JSON::stringify(body)?).as_string();
    Ok(text.map(|text| text.replace('\u{fffd}', "\\ufffd")))
}

fn field(given: &JsValue, name: &str) -> JsValue {
    Reflect::get(given, &name.into()).unwrap_or_default()
}

/// The fields that were given, as part of a URL.
fn query<const N: usize>(given: &JsValue, names: [&str; N]) -> Result<String, JsValue> {
    let fields = names.map(|name| (name, field(given, name)));
    let given = fields.iter().filter(|(_, value)| !value.is_null_or_undefined());
    let pairs = given.map(|(name, value)| Ok(format!("{name}={}", encode(value)?)));
    pairs.collect::<Result<Vec<_>, JsValue>>().map(|pairs| pairs.join("&"))
}

/// A field as part of a URL, which would resolve `.` and `..` even percent-encoded.
fn escaped(name: &str, value: &JsValue) -> Result<String, JsValue> {
    let found = match value.as_string() {
        Some(text) if text != "." && text != ".." => return encode(value),
        Some(text) => format!("`{text}`"),
        None => value.js_typeof().as_string().unwrap_or_default(),
    };
    let expected = "expected a string other than `.` and `..`";
    Err(TypeError::new(&format!("`{name}`: {expected}, found {found}")).into())
}
