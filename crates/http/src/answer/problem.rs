//! Errors as `application/problem+json` (RFC 9457), each with a stable type.

use alloc::borrow::Cow;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use tidegate_gate::{AskError, Cause, Decision, Micros, NamedLimit, PolicyError, Verdict};

use super::CheckResult;
use super::json::object;
use crate::response::{Header, Headers, Response};

#[derive(Clone, Copy, Debug)]
pub(crate) enum Problem {
    InvalidRequest,
    InvalidPolicies,
    InvalidKey,
    CostExceedsCapacity,
    Unauthorized,
    Denied,
    NotFound,
    UnknownPolicy,
    MethodNotAllowed,
    BodyTooLate,
    PoliciesChanged,
    BodyTooLarge,
    TargetTooLong,
    UnsupportedCoding,
    IdempotencyKeyReused,
    PreconditionRequired,
    QuotaExceeded,
    AbnormalUsage,
    Internal,
    UnknownTransferCoding,
    BadGateway,
    ReducedCapacity,
    NotReady,
}

/// What a problem says beside its kind.
#[derive(Default)]
struct Body<'a> {
    detail: String,
    /// The policy that refused, if it was one of several.
    policy: Option<&'a str>,
    violated_policies: &'a [&'a str],
    retry_after_us: Option<u64>,
    /// The place of an error in a policy file.
    place: Option<&'a PolicyError>,
}

impl Problem {
    const fn describe(self) -> (u16, &'static str, &'static str) {
        match self {
            Self::InvalidRequest => (400, "urn:tidegate:invalid-request", "Invalid request"),
            Self::InvalidPolicies => (400, "urn:tidegate:invalid-policies", "Invalid policies"),
            Self::InvalidKey => (400, "urn:tidegate:invalid-key", "Invalid key"),
            Self::CostExceedsCapacity => {
                (400, "urn:tidegate:cost-exceeds-capacity", "Cost exceeds capacity")
            }
            Self::Unauthorized => (401, "urn:tidegate:unauthorized", "Unauthorized"),
            Self::Denied => (403, "urn:tidegate:denied", "Denied"),
            Self::NotFound => (404, "urn:tidegate:not-found", "Not found"),
            Self::UnknownPolicy => (404, "urn:tidegate:unknown-policy", "Unknown policy"),
            Self::MethodNotAllowed => {
                (405, "urn:tidegate:method-not-allowed", "Method not allowed")
            }
            Self::BodyTooLate => (408, "urn:tidegate:body-too-late", "Body too late"),
            Self::PoliciesChanged => (412, "urn:tidegate:policies-changed", "Policies changed"),
            Self::BodyTooLarge => (413, "urn:tidegate:body-too-large", "Body too large"),
            Self::TargetTooLong => (414, "urn:tidegate:target-too-long", "Target too long"),
            Self::UnsupportedCoding => {
                (415, "urn:tidegate:unsupported-coding", "Unsupported content coding")
            }
            Self::IdempotencyKeyReused => {
                (422, "urn:tidegate:idempotency-key-reused", "Idempotency key reused")
            }
            Self::PreconditionRequired => {
                (428, "urn:tidegate:precondition-required", "Precondition required")
            }
            Self::QuotaExceeded => (
                429,
                "https://iana.org/assignments/http-problem-types#quota-exceeded",
                "Quota exceeded",
            ),
            Self::AbnormalUsage => (
                429,
                "https://iana.org/assignments/http-problem-types#abnormal-usage-detected",
                "Abnormal usage detected",
            ),
            Self::Internal => (500, "urn:tidegate:internal-error", "Internal error"),
            Self::UnknownTransferCoding => {
                (501, "urn:tidegate:unknown-transfer-coding", "Unknown transfer coding")
            }
            Self::BadGateway => (502, "urn:tidegate:upstream-failed", "Upstream failed"),
            Self::ReducedCapacity => (
                503,
                "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
                "Temporarily reduced capacity",
            ),
            Self::NotReady => (503, "urn:tidegate:not-ready", "Not ready"),
        }
    }

    /// The problem of a refusal by these limits. A penalty comes before all others. A 503 says that the
    /// client did nothing wrong and may try another server, so it is the answer only if every limit that
    /// refused sheds load.
    fn of_causes(violated: impl Iterator<Item = Cause>) -> Self {
        match violated.max() {
            // no limit refused, so the key is blocked
            None | Some(Cause::AbnormalUsage) => Self::AbnormalUsage,
            Some(Cause::QuotaExceeded) => Self::QuotaExceeded,
            Some(Cause::ReducedCapacity) => Self::ReducedCapacity,
        }
    }

    pub(crate) const fn r#type(self) -> &'static str {
        self.describe().1
    }

    pub(crate) fn response(self, detail: String) -> Response {
        self.with(Body { detail, ..Body::default() })
    }

    fn with(self, body: Body<'_>) -> Response {
        let (status, r#type, title) = self.describe();
        let body = object(|it| {
            it.field("type", r#type);
            it.field("title", title);
            it.field("status", u64::from(status));
            it.field("detail", body.detail.as_str());
            it.some("policy", body.policy);
            let violated = Some(body.violated_policies).filter(|names| !names.is_empty());
            it.some("violated-policies", violated);
            it.some("retry_after_us", body.retry_after_us);
            if let Some(place) = body.place {
                it.field("line", place.line);
                it.field("column", place.column);
                it.field("path", place.path.as_str());
            }
        });
        answer(status, "application/problem+json", body)
    }
}

/// `PUT /v1/policies` with a file that is wrong.
pub(crate) fn wrong_policies(error: &PolicyError) -> Response {
    let (detail, place) = (error.to_string(), Some(error));
    Problem::InvalidPolicies.with(Body { detail, place, ..Body::default() })
}

/// The store did not answer, for this reason, and the policy's `on_error` refuses the request.
pub(crate) fn unavailable(result: &CheckResult<'_>, detail: String) -> Response {
    let policy = result.name_among_others();
    Problem::ReducedCapacity.with(Body { detail, policy, ..Body::default() })
}

/// `wait` is what the caller is told to wait.
pub(crate) fn refused(result: &CheckResult<'_>, verdict: &Verdict, wait: Micros) -> Response {
    let policy = result.name_among_others();
    let Some(limits) = result.limits() else {
        let detail = "the key is on the policy's list `deny`".to_string();
        return Problem::Denied.with(Body { detail, policy, ..Body::default() });
    };
    let violated = || {
        let refuses = |(_, decision): &(&NamedLimit, &Decision)| !decision.is_allowed();
        limits.counting(verdict).filter(refuses).map(|(limit, _)| limit)
    };
    let problem = Problem::of_causes(violated().map(|limit| limit.limit.cause()));
    let names: Vec<_> = violated().map(|limit| result.name_of(limit)).collect();
    let names: Vec<&str> = names.iter().map(|name| &**name).collect();
    let is_hint = wait < verdict.decision.retry_after();
    let seconds = wait.as_secs_ceil(); // as `Retry-After`; `retry_after_us` is exact
    let detail = match problem {
        _ if names.is_empty() => alloc::format!("the key is blocked for {seconds} s"),
        Problem::ReducedCapacity => {
            alloc::format!("the service is shedding load; try again in {seconds} s")
        }
        _ if is_hint => alloc::format!("all places are taken; try again in {seconds} s"),
        _ => alloc::format!("the same request is granted in {seconds} s"),
    };
    let violated_policies = names.as_slice();
    let retry_after_us = Some(wait.0);
    problem.with(Body { detail, policy, violated_policies, retry_after_us, ..Body::default() })
}

pub(crate) fn answer_json(status: u16, body: String) -> Response {
    answer(status, "application/json", body)
}

pub(crate) fn answer_text(content_type: &'static str, body: String) -> Response {
    answer(200, content_type, body)
}

pub(crate) fn no_content() -> Response {
    Response { status: 204, headers: [NO_STORE].into(), body: String::new() }
}

fn answer(status: u16, content_type: &'static str, body: String) -> Response {
    let mut headers = Headers::with_capacity(5); // a refusal's
    headers.extend([("content-type", content_type.into()), NO_STORE]);
    Response { status, headers, body }
}

/// A decision holds for one request, so no cache may store it. RFC 6585 §4 demands this for a 429.
const NO_STORE: Header = ("cache-control", Cow::Borrowed("no-store"));

pub(crate) const MISCONFIGURED: &str =
    "the server is not configured correctly, and its log says why";

/// The response to a request that the server found invalid before it made an [`Exchange`](crate::Exchange) of it.
#[must_use]
pub fn invalid_request(detail: String) -> Response {
    Problem::InvalidRequest.response(detail)
}

/// The response to a body in a transfer coding that the server cannot decode.
#[must_use]
pub fn unknown_transfer_coding(detail: String) -> Response {
    Problem::UnknownTransferCoding.response(detail)
}

/// The response to a policy file that is valid, but asks for something that this server does not have.
#[must_use]
pub fn invalid_policies(detail: String) -> Response {
    Problem::InvalidPolicies.response(detail)
}

/// The response to a call about the revisions of the policies at a server that keeps none.
#[must_use]
pub fn without_revisions() -> Response {
    Problem::NotFound.response("this server keeps no revisions of its policies".to_string())
}

/// The response to a request while the policy file or the secrets of the server cannot be used. The reason is for the
/// server's log alone. A call of `/healthz` hears that the server is not healthy, wherever the file would have put the
/// call.
#[must_use]
pub fn misconfigured(path: &str) -> Response {
    match path.ends_with("/healthz") {
        true => answer_json(503, "{\"status\":\"unhealthy\"}".into()),
        false => internal_error(MISCONFIGURED.into()),
    }
}

/// The response to a request on which the server itself failed.
#[must_use]
pub fn internal_error(detail: String) -> Response {
    Problem::Internal.response(detail)
}

/// The problem type with which the HTTP API answers this error.
#[must_use]
pub const fn problem_type(error: &AskError) -> &'static str {
    of_ask(error).r#type()
}

/// The response to an operation that does not fit its policy. `at` is the place in the request that the error names.
pub(crate) fn of(error: &AskError, at: &str) -> Response {
    of_ask(error).response(alloc::format!("{at}{error}"))
}

const fn of_ask(error: &AskError) -> Problem {
    match error {
        AskError::Key(_) => Problem::InvalidKey,
        AskError::Cost(_) => Problem::CostExceedsCapacity,
        AskError::NoRandomness => Problem::Internal,
        _ => Problem::InvalidRequest,
    }
}
