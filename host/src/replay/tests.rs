//! A replay of an access log decides as `GET /v1/gate` did when the requests came.

use std::fmt::Write as _;
use std::io::Cursor;
use std::sync::Arc;

use tidegate_gate::{Policies, Timestamp};
use tidegate_http::{Access, Exchange, Head, Outcome, RevisionTag, Served, Server, Step, Tokens};

use super::{Backend, BackendKind, Target, Trace};
use crate::store::Memory;

const POLICIES: &str = "
auth = 'none'
trusted_proxies = ['203.0.113.0/24']
[policies.api]
key = ['header:x-api-key', 'ip']
limits = [{ algorithm = 'fixed_window', limit = 20, period = '1m' }]
deny = ['ip:198.51.100.0/24', 'ip:2001:db8:bad::/48']
allow = ['ip:192.0.2.1']
overrides = { 'ip:192.0.2.0/24' = { limit = 2 }, 'ip:2001:db8:1::/48' = { limit = 40 } }
";

/// Clients that are denied, allowed, under an override, and under the policy's own limits. Those with IPv6 change
/// their address within their network.
const CLIENTS: [&str; 8] = [
    "198.51.100.7",
    "2001:db8:bad::",
    "192.0.2.1",
    "192.0.2.9",
    "2001:db8:1::",
    "2001:db8:2::",
    "203.0.113.7",
    "::ffff:203.0.113.7",
];

struct Gate {
    memory: Memory,
    now: Timestamp,
}

impl Gate {
    fn passes(&mut self, policies: &Arc<Policies>, client: &str) -> bool {
        let client_ip = &|| client.parse().ok();
        let (path, query, now) = ("/v1/gate", "policy=api", self.now);
        let head = Head { path, query, client_ip, now, ..Head::default() };
        let access = &Access::new(policies, Tokens::default()).unwrap();
        let (revision, metrics) = (&RevisionTag::default(), &String::new);
        let server = Server { policies, access, revision, metrics };
        let mut exchange = Exchange::of_api(&server, &head, &mut || None);
        loop {
            match exchange.step() {
                Step::Decide(checks) => {
                    let decided = checks.iter().map(|check| {
                        let operation = check.operation();
                        let verdict = self.memory.operate(check.resolved(), self.now, operation);
                        Outcome::Decided(verdict.unwrap())
                    });
                    let outcomes = decided.collect();
                    exchange.decided(outcomes);
                }
                Step::Done(Served::Response(response)) => match response.status {
                    204 => return true,
                    403 | 429 => return false,
                    status => panic!("{status}"),
                },
                step => panic!("{step:?}"),
            }
        }
    }
}

#[tokio::test]
async fn an_access_log_is_decided_as_the_gate_decided_it() {
    let policies = Arc::new(Policies::parse(POLICIES).unwrap());
    let policy = policies.all()[0].clone();
    let mut gate = Gate { memory: Memory::new(policy, 1 << 20).unwrap(), now: Timestamp(0) };
    let (mut log, mut expected) = (String::new(), Vec::new());
    for line in 0..3_000 {
        let mut client = CLIENTS[line % CLIENTS.len()].to_owned();
        if client.ends_with("::") {
            let _ = write!(client, "{line:x}");
        }
        let second = line / 10;
        gate.now = Timestamp(1_431_856_800_000_000 + u64::try_from(second).unwrap() * 1_000_000);
        expected.push(gate.passes(&policies, &client));
        let vhost = if line % 2 == 0 { "example.com:443 " } else { "" };
        let (minute, second) = (second / 60, second % 60);
        let time = format!("17/May/2015:10:{minute:02}:{second:02} +0000");
        let _ = writeln!(log, "{vhost}{client} - - [{time}] \"GET / HTTP/1.1\" 200 1 \"-\" \"-\"");
    }
    let mut trace = Trace::new(Box::new(Cursor::new(log)), &policies, None).unwrap();
    let mut events = Vec::new();
    while let Some(line) = trace.next_line().unwrap() {
        events.push(line.unwrap());
    }
    let target = Target::default();
    let mut memory = Backend::start(BackendKind::Memory, &policies, &target).await.unwrap();
    let decisions = memory.decide(&events).await.unwrap();
    let allowed: Vec<bool> = decisions.iter().map(|decision| decision.allowed).collect();
    let count = |all: &[bool]| all.iter().filter(|allowed| **allowed).count();
    assert_eq!((count(&allowed), allowed.len()), (count(&expected), expected.len()));
    assert_eq!(allowed, expected);
}
