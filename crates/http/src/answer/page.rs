//! The page for browsers. It has no text of any caller, so nothing is escaped.

use alloc::format;
use alloc::string::{String, ToString};

use crate::head::Head;
use crate::response::Response;

/// Whether the client of a request prefers a page to JSON.
pub(crate) fn is_preferred_by(head: &Head<'_>) -> bool {
    (head.header)("accept").is_some_and(|accept| is_preferred(&accept))
}

/// Whether an `Accept` header prefers a page to JSON (RFC 9110 §12.5.1). A client that accepts everything gets JSON.
pub(crate) fn is_preferred(accept: &str) -> bool {
    let weight = |media: &str| {
        let ranges = accept.split(',').filter_map(|range| {
            let mut parts = range.split(';').map(str::trim);
            parts.next().filter(|name| name.eq_ignore_ascii_case(media))?;
            Some(parts.find_map(quality).unwrap_or(1_000))
        });
        ranges.max().unwrap_or(0)
    };
    let page = weight("text/html");
    page > 0 && page >= weight("application/json").max(weight("application/problem+json"))
}

/// A weight in thousandths (RFC 9110 §12.4.2).
fn quality(parameter: &str) -> Option<u16> {
    let (name, weight) = parameter.split_once('=')?;
    if !name.eq_ignore_ascii_case("q") {
        return None;
    }
    let decimals = weight.strip_prefix("0.").filter(|decimals| decimals.len() <= 3);
    let decimals = decimals.and_then(|decimals| format!("{decimals:0<3}").parse().ok());
    Some(decimals.unwrap_or(if weight.starts_with('1') { 1_000 } else { 0 }))
}

/// The page in place of a problem.
pub(crate) fn of(problem: Response) -> Response {
    let header = |name: &str| problem.headers.iter().find(|header| header.0 == name);
    let title = match problem.status {
        400 => "This request cannot be read",
        403 => "Access denied",
        404 => "Not found",
        414 => "This address is too long",
        429 => "Too many requests",
        502 => "The site does not answer",
        503 => "The site is busy",
        _ => "Something went wrong",
    };
    let advice = match (header("retry-after"), problem.status) {
        (Some((_, seconds)), _) => {
            let wait = seconds.parse().map_or_else(|_| "a while".to_string(), words);
            format!("Please try again in {wait}.")
        }
        (None, 500 | 502 | 503) => "Please try again later.".to_string(),
        (None, _) => "Please check the address, or ask the owner of the site.".to_string(),
    };
    let mut headers = problem.headers;
    headers.retain(|(name, _)| *name != "content-type");
    headers.push(("content-type", "text/html; charset=utf-8".into()));
    headers.push(("content-security-policy", POLICY.into()));
    let body = PAGE.replace("TITLE", title).replace("ADVICE", &advice);
    let body = body.replace("STATUS", &problem.status.to_string());
    Response { status: problem.status, headers, body }
}

/// A wait in words, rounded up, because an earlier try is refused.
fn words(seconds: u64) -> String {
    let (wait, unit) = match seconds {
        0..120 => (seconds, "second"),
        120..7_200 => (seconds.div_ceil(60), "minute"),
        7_200..172_800 => (seconds.div_ceil(3_600), "hour"),
        _ => (seconds.div_ceil(86_400), "day"),
    };
    format!("{wait} {unit}{}", if wait == 1 { "" } else { "s" })
}

const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'";

const PAGE: &str = "<!doctype html>
<html lang=\"en\">
<meta charset=\"utf-8\">
<meta name=\"viewport\" content=\"width=device-width\">
<meta name=\"robots\" content=\"noindex\">
<title>TITLE</title>
<style>
:root{color-scheme:light dark}
body{margin:0;min-height:100vh;display:grid;place-items:center;font:1.1rem/1.6 system-ui,sans-serif}
main{max-width:30rem;padding:2rem;text-align:center}
p:first-child{margin:0;font-size:3.5rem;font-weight:200;opacity:.5}
h1{margin:.5rem 0;font-size:1.6rem}
</style>
<main><p>STATUS</p><h1>TITLE</h1><p>ADVICE</p></main>
";

#[cfg(test)]
mod tests {
    use alloc::string::ToString;
    use alloc::vec;

    use super::{of, words};
    use crate::response::Response;

    #[test]
    fn a_page_says_what_happened_and_what_to_do() {
        let (check, later) = ("Please check the address", "Please try again later.");
        for (status, title, advice) in [
            (400, "This request cannot be read", check),
            (403, "Access denied", check),
            (404, "Not found", check),
            (414, "This address is too long", check),
            (418, "Something went wrong", check),
            (429, "Too many requests", check),
            (500, "Something went wrong", later),
            (502, "The site does not answer", later),
            (503, "The site is busy", later),
        ] {
            let headers = vec![("content-type", "application/problem+json".into())];
            let page = of(Response { status, headers, body: "{}".to_string() });
            assert_eq!((page.status, &*page.headers[0].1), (status, "text/html; charset=utf-8"));
            let words = std::format!("<p>{status}</p><h1>{title}</h1><p>{advice}");
            assert!(page.body.contains(&words), "{words}: {}", page.body);
            let headers = vec![("retry-after", "90".into())];
            let page = of(Response { status, headers, body: "{}".to_string() });
            assert!(page.body.contains("try again in 90 seconds."), "{}", page.body);
        }
    }

    #[test]
    fn a_wait_is_told_in_words_and_never_too_short() {
        for (seconds, expected) in [
            (1, "1 second"),
            (119, "119 seconds"),
            (120, "2 minutes"),
            (121, "3 minutes"),
            (7_199, "120 minutes"),
            (7_201, "3 hours"),
            (43_200, "12 hours"),
            (172_801, "3 days"),
        ] {
            assert_eq!(words(seconds), expected);
        }
    }
}
