//! Units that callers hold and give back: leases, connections, reservations, budgets.

use serde_json::{Value, json};
use tidegate_tests::Served;

const DAY: u64 = 86_400_000_000;

pub fn concurrent_requests_never_hold_more_than_the_capacity(served: &Served) {
    let granted: usize = std::thread::scope(|scope| {
        let asked: Vec<_> = (0..4)
            .map(|thread| {
                scope.spawn(move || {
                    let granted = |lease: &u64| {
                        let name = format!("{thread}-{lease}");
                        let body = json!({ "policy": "jobs", "key": "k", "lease": name });
                        served.api.post("/v1/leases", body.to_string()).get("allowed") == true
                    };
                    (0..5).filter(granted).count()
                })
            })
            .collect();
        asked.into_iter().map(|asked| asked.join().unwrap()).sum()
    });
    assert_eq!(granted, 2);
}

pub fn a_budget_takes_units_from_the_rate_and_gives_them_back(served: &Served) {
    let budget = |holder: &str, wants: u64, unspent: Option<(&Value, u64)>| {
        let mut body = json!({ "policy": "spread", "key": "k", "lease": holder, "wants": wants });
        if let Some((granted_at, left)) = unspent {
            body["granted_at_us"] = granted_at.clone();
            body["left"] = left.into();
        }
        served.api.post("/v1/budget", body.to_string())
    };
    let first = budget("node-1", 60, None);
    let allowance = first.get("budget");
    assert_eq!((first.status, &allowance["granted"]), (200, &json!(40)), "{first:?}");
    let at = &allowance["granted_at_us"];
    assert_eq!(allowance["expires_at_us"].as_u64(), at.as_u64().map(|at| at + DAY));
    assert_eq!(first.get("limits")[0]["remaining"], 60);
    let back = budget("node-1", 0, Some((at, 15)));
    assert_eq!((back.get("live"), &back.get("limits")[0]["remaining"]), (json!(true), &json!(75)));
    let twice = budget("node-1", 0, Some((at, 15)));
    assert_eq!(
        (twice.get("live"), &twice.get("limits")[0]["remaining"]),
        (json!(false), &json!(75))
    );
    let second = budget("node-2", 30, None);
    assert_eq!(second.get("budget")["granted"], 30);
    assert_eq!(served.api.check("spread", "k", 46, None).get("allowed"), false, "45 are left");
    let half = json!({ "policy": "spread", "key": "k", "lease": "n", "wants": 1, "left": 1 });
    assert_eq!(served.api.post("/v1/budget", half.to_string()).status, 400);
}
