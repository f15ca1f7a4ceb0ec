//! Requests from pages of other origins (the Fetch standard, "CORS protocol"): preflights, and the fields by which a browser
//! lets a page read an answer.

use alloc::string::String;

use tidegate_gate::Route;

use crate::head::Head;
use crate::key::other_spellings;
use crate::response::Headers;

/// The fields of an answer that a page may read only if the answer says so.
const EXPOSED: &str = "RateLimit, RateLimit-Policy, Retry-After";

/// The fields by which a server may take a request for one of another method.
const OVERRIDES: [&str; 3] = ["x-http-method-override", "x-http-method", "x-method-override"];

/// The method that a preflight asks about; `None` for any other request.
///
/// A preflight is free, so nothing that a server takes for another method may pass for one: browsers send a preflight
/// without a body, and never with a field of [`OVERRIDES`].
pub(super) fn preflight(head: &Head<'_>) -> Option<String> {
    if head.method != "OPTIONS" {
        return None;
    }
    let header = head.header;
    let has = |name: &str| header(name).is_some();
    let overrides = |name: &&str| has(name) || other_spellings(name).iter().any(|name| has(name));
    let is_of_another = OVERRIDES.iter().any(overrides) || head.query.contains("_method");
    let length = header("content-length").filter(|length| length != "0");
    if is_of_another || length.is_some() || has("transfer-encoding") || !has("origin") {
        return None;
    }
    header("access-control-request-method")
}

/// The fields of the gateway's own answer to a request of this route.
pub(super) fn of_own_answer(route: &Route, head: &Head<'_>) -> Headers {
    let mut fields = of_passed(route);
    match route.origins().next() {
        None => {}
        Some("*") => fields.push(("access-control-allow-origin", "*".into())),
        Some(_) => {
            fields.push(("vary", "Origin".into()));
            let origin = (head.header)("origin");
            if let Some(origin) = origin.filter(|origin| route.origins().any(|one| one == origin)) {
                fields.push(("access-control-allow-origin", origin.into()));
                fields.push(("access-control-allow-credentials", "true".into()));
            }
        }
    }
    fields
}

/// The field by which a page may read what the gateway adds to the answer of the upstream, if the upstream lets the page read
/// its answer.
pub(super) fn of_passed(route: &Route) -> Headers {
    let exposed = ("access-control-expose-headers", EXPOSED.into());
    route.origins().next().map(|_| exposed).into_iter().collect()
}
