//! What middleware asks of a limiter, wherever its states are. The words are the gateway's.

mod metering;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use tidegate_gate::{
    Chance, Gateway, JoinedSources, Limits, Operation, Policy, Resolved, Timestamp,
};
use tidegate_http::{
    Exchange, Granted, Head, Keyed, OlderForm, Outcome, Pass, Response, Served, Step, address,
    internal_error, key_headers,
};

use crate::failure::Failure;
use crate::fields::Fields;
use crate::policy::UNNAMED;
pub(crate) use metering::NativeMetering;

/// The names of the headers that [`key_of`] reads, in the order in which it takes their values.
///
/// # Errors
/// Fails if a source of the policy's keys is a verified token.
pub(crate) fn headers_of_keys(gateway: &Gateway, policy: &Policy) -> Result<Vec<String>, Failure> {
    if policy.key_sources().iter().any(JoinedSources::needs_verification) {
        let message = "`key`: expected sources that middleware can read, found a source `jwt:`; only the Worker \
                       verifies tokens";
        return Err(Failure::Option(message.into()));
    }
    Ok(key_headers(gateway, policy))
}

/// The parts of a request in which keys are found.
pub(crate) struct Request<'r> {
    /// The values of the [`headers_of_keys`]. An empty one counts as absent.
    pub(crate) headers: Vec<String>,
    pub(crate) query: &'r str,
    pub(crate) ip: Option<String>,
    pub(crate) now: Timestamp,
}

/// The key of a request; if the request has none, the fields of its refusal.
pub(crate) fn key_of(
    gateway: &Gateway,
    policy: &Policy,
    request: Request<'_>,
) -> Result<String, String> {
    let Request { headers, query, ip, now } = request;
    let names = key_headers(gateway, policy);
    let present = |(_, value): &(String, String)| !value.is_empty(); // JavaScript gives an empty text for a missing one
    let all: Vec<_> = names.into_iter().zip(headers).filter(present).collect();
    let header =
        |name: &str| all.iter().find(|header| header.0 == name).map(|(_, value)| value.clone());
    let client_ip = ip.as_deref().and_then(client_address);
    let found = |client_ip: &dyn Fn() -> Option<IpAddr>| {
        let head = Head { query, header: &header, client_ip, now, ..Head::default() };
        tidegate_http::key_of(gateway, policy, &head)
    };
    found(&|| client_ip).map_err(|refusal| {
        // a request that would have a key with an address is the client's mistake only if the address is known
        let is_ours = client_ip.is_none() && found(&|| Some(Ipv4Addr::UNSPECIFIED.into())).is_ok();
        refused(&if is_ours { without_address(ip.as_deref()) } else { refusal })
    })
}

/// The address of the client. A link-local address has a zone, such as `fe80::1%eth0`, which is a name of this machine's own.
fn client_address(text: &str) -> Option<IpAddr> {
    let Some((before, zone)) = text.split_once('%') else { return address(text) };
    let after = zone.find(']').and_then(|end| zone.get(end..)).unwrap_or_default();
    address(&format!("{before}{after}"))
}

fn without_address(found: Option<&str>) -> Response {
    let found = found.map_or_else(|| "none".to_owned(), |text| format!("{text:?}"));
    let detail = "the address of the client: expected an address from the framework or from `options.ip`, found ";
    internal_error(format!("{detail}{found}"))
}

/// # Errors
/// Fails if units of the policy could not come back, so that no other policy may refuse a request after this one has granted it.
pub(crate) fn require_undo(policy: &Policy, reserves: bool) -> Result<(), Failure> {
    let own = policy.overrides().iter().map(|(_, own)| own);
    let mut rules = std::iter::once(policy.limits()).chain(own);
    if reserves || !rules.any(Limits::have_payers) {
        return Ok(());
    }
    Err(Failure::Option(format!(
        "`limiters`: expected {:?} last, or `reservations` of it beside `actual` or `countIf`, because units that come \
         back do not say which `payer` they belong to; found it before another limiter",
        policy.name()
    )))
}

/// A form of the headers; `None` for the newest, which has no name.
///
/// # Errors
/// Fails if there is no such form.
pub(crate) fn older(form: &str) -> Result<Option<OlderForm>, Failure> {
    if form.is_empty() {
        return Ok(None);
    }
    form.parse().map(Some).map_err(|error| Failure::Option(format!("`options.headers`: {error}")))
}

/// A request on which a limiter decides for middleware.
#[derive(Debug)]
pub(crate) struct Asking {
    exchange: Exchange,
    granted: Granted,
}

impl Asking {
    /// Begins. Names of limits begin with that of the policy only if it has one.
    pub(crate) fn new(policy: &Arc<Policy>, asked: Keyed<'_>, random: Chance<'_>) -> Self {
        let is_one_of_several = asked.is_one_of_several && policy.name() != UNNAMED;
        let asked = Keyed { is_one_of_several, ..asked };
        let exchange = Exchange::of_key(policy, &asked, random);
        Self { exchange, granted: Granted::default() }
    }

    /// What to do next.
    pub(crate) fn next(&mut self) -> Next {
        match self.exchange.step() {
            Step::Decide([check]) => Next::Decide(check.resolved().clone(), check.operation()),
            Step::Done(Served::Pass(pass)) => Next::Done(passed(&pass, self.granted)),
            Step::Done(Served::Response(response)) => Next::Done(refused(&response)),
            _ => Next::Done(refused(&internal_error("a key asks for one decision".into()))),
        }
    }

    /// Takes what the store has decided.
    pub(crate) fn decided(&mut self, outcome: Outcome) {
        if let Step::Decide([check]) = self.exchange.step() {
            self.granted = Granted::of(check.asked(), &outcome);
        }
        self.exchange.decided([outcome].into());
    }
}

/// What to do next with a request.
pub(crate) enum Next {
    /// Decide this in a store, and call [`Asking::decided`].
    Decide(Resolved, Operation),
    /// What becomes of the request, in fields: the status, which is 0 for a request that passes, the body, the name of the lease to
    /// hold, which is empty without a lease, the µs between two renewals, the id of the reservation and its units, the time and the units
    /// of a grant whose units can come back, the units that are left, and the headers.
    Done(String),
}

fn refused(Response { status, headers, body }: &Response) -> String {
    let mut fields = Fields::with_capacity(body.len());
    fields.number(u64::from(*status)).text(body).text("").number(0).text("").number(0);
    fields.number(0).number(0).number(0).headers(headers);
    fields.into_text()
}

fn passed(Pass { headers, leases, reservations, .. }: &Pass, granted: Granted) -> String {
    let Granted { at, units, remaining, .. } = granted;
    let lease = leases.first().map(|lease| (lease.name.as_str(), lease.renew_every.0));
    let (name, every_us) = lease.unwrap_or_default();
    let reservation = reservations.first().map(|one| (one.id.as_str(), one.meter.estimate()));
    let (id, reserved) = reservation.unwrap_or_default();
    let mut fields = Fields::default();
    fields.number(0).text("").text(name).number(every_us).text(id).number(reserved);
    fields.number(at.0).number(units).number(remaining).headers(headers);
    fields.into_text()
}
