//! Requests from pages of other origins (the Fetch standard, "CORS protocol"): preflights, and the fields by which a browser
//! lets a page read an answer.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use tidegate_gate::Route;

use crate::head::Head;

/// The fields of an answer that a page may read only if the answer says so.
const EXPOSED: &str = "RateLimit, RateLimit-Policy, Retry-After";

/// The method that a preflight asks about; `None` for any other request.
///
/// A preflight is free, so nothing that a server takes for another method may pass for one: browsers send a preflight
/// without a body, and never with these fields.
pub(super) fn preflight(head: &Head<'_>) -> Option<String> {
    if head.method != "OPTIONS" {
        return None;
    }
    let header = head.header;
    let of_another =
        ["x-http-method-override", "x-http-method", "x-method-override", "transfer-encoding"];
    let is_plain = of_another.iter().all(|name| header(name).is_none());
    let is_empty = header("content-length").is_none_or(|length| length == "0");
    header("origin").filter(|_| is_plain && is_empty)?;
    header("access-control-request-method")
}

/// The fields of the gateway's own answer to a request of this route.
pub(super) fn of_own_answer(route: &Route, head: &Head<'_>) -> Vec<(&'static str, String)> {
    let mut fields = of_passed(route);
    match route.origins().next() {
        None => {}
        Some("*") => fields.push(("access-control-allow-origin", "*".to_string())),
        Some(_) => {
            fields.push(("vary", "Origin".to_string()));
            let origin = (head.header)("origin");
            if let Some(origin) = origin.filter(|origin| route.origins().any(|one| one == origin)) {
                fields.push(("access-control-allow-origin", origin));
                fields.push(("access-control-allow-credentials", "true".to_string()));
            }
        }
    }
    fields
}

/// The field by which a page may read what the gateway adds to the answer of the upstream, if the upstream lets the page read
/// its answer.
pub(super) fn of_passed(route: &Route) -> Vec<(&'static str, String)> {
    let exposed = ("access-control-expose-headers", EXPOSED.to_string());
    route.origins().next().map(|_| exposed).into_iter().collect()
}
