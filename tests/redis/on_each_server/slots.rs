//! In a Redis Cluster all states of one decision are in one slot, whatever the key.

use tidegate::gate::{Policy, blob};
use tidegate::local::{RedisServer, at_a_port};

use crate::ask;

const KEYS: [&str; 10] =
    ["acme/bob", "a}b/c", "a}c/c", "{", "}", "{}", "}{/x", "{a}/b", "é}/ü", "a%7Db/c"];

/// A Redis in cluster mode.
fn cluster() -> RedisServer {
    let start = |port: u16| {
        let port = port.to_string();
        RedisServer::start_with([
            "--cluster-enabled",
            "yes",
            "--bind",
            "127.0.0.1",
            "--port",
            &port,
        ])
    };
    at_a_port(start).unwrap()
}

async fn slot(server: &RedisServer, name: &str) -> u16 {
    ask(server, &[b"CLUSTER", b"KEYSLOT", name.as_bytes()]).await
}

#[tokio::test]
async fn the_states_of_one_decision_are_in_one_slot() {
    let server = cluster();
    let whole = "{ algorithm = 'fixed_window', limit = 1, period = '1s' }";
    let by = |depth| whole.replace(" }", &format!(", depth = {depth} }}"));
    for on_change in ["reset", "keep"] {
        for limits in [vec![by(0), by(1), by(2), whole.into()], vec![by(1), whole.into()]] {
            let limits = limits.join(", ");
            let text = format!("on_change = '{on_change}'\nlimits = [{limits}]");
            let policy = Policy::parse("p", &text).unwrap();
            for key in KEYS {
                let mut slots = Vec::new();
                for record in policy.limits().records() {
                    slots.push(slot(&server, &blob::name(&policy, record, key)).await);
                }
                let partition = policy.partition(key).replace('%', "%25").replace('}', "%7D");
                let expected = slot(&server, &format!("p:{partition}")).await;
                assert!(slots.iter().all(|slot| *slot == expected), "{key}: {slots:?}");
            }
        }
    }
}

/// Keys that closed the braces of the hash tag early would all be in one slot, on one server.
#[tokio::test]
async fn no_shape_of_key_gathers_in_one_slot() {
    let server = cluster();
    let text = "limits = [{ algorithm = 'fixed_window', limit = 1, period = '1s' }]";
    let policy = Policy::parse("p", text).unwrap();
    let record = &policy.limits().records()[0];
    for shape in ["x}", "}", "{}", "{x}", "x"] {
        let mut slots = std::collections::HashSet::new();
        for number in 0..100 {
            let name = blob::name(&policy, record, &format!("{shape}{number}"));
            slots.insert(slot(&server, &name).await);
        }
        assert!(slots.len() > 90, "{shape}: 100 keys in {} slots", slots.len());
    }
}
