//! Tasks on several hosts see one order of all decisions on a key.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate::gate::Policy;
use tidegate::local::RedisServer;

use super::{NOW, on, policy, store};

const TASKS: u64 = 8;
const HOSTS: usize = 3;
const EACH: u64 = 300;

/// Fewer than all tasks ask for, so that some requests are refused.
const LIMIT: u64 = 1_500;

/// What a task saw of one operation. The times are counts of beginnings and ends of all tasks.
#[derive(Debug)]
struct Seen {
    began: u64,
    ended: u64,
    is_peek: bool,
    is_allowed: bool,
    remaining: u64,
}

/// Checks that some order of the operations explains all answers, and that an operation which ended before
/// another began comes before it.
///
/// Each grant says how many came before it, so the grants have only one order. A peek or a refusal saw a
/// number of grants, and so it stands between two of them.
fn check(seen: &[Seen]) -> Result<(), String> {
    let is_grant = |seen: &&Seen| !seen.is_peek && seen.is_allowed;
    let mut grants: Vec<&Seen> = seen.iter().filter(is_grant).collect();
    grants.sort_by_key(|grant| LIMIT - grant.remaining);
    for (place, grant) in grants.iter().enumerate() {
        if LIMIT - grant.remaining != place as u64 + 1 {
            return Err(format!("grant {place} saw another number of grants: {grant:?}"));
        }
    }
    // no later grant may have ended before an earlier one began
    let mut began = 0;
    for grant in &grants {
        if grant.ended < began {
            return Err(format!("{grant:?} ended before an earlier grant began, at {began}"));
        }
        began = began.max(grant.began);
    }
    for other in seen.iter().filter(|seen| !is_grant(seen)) {
        let saw = (LIMIT - other.remaining) as usize;
        if !other.is_peek && saw as u64 != LIMIT {
            return Err(format!("refused although units remain: {other:?}"));
        }
        let ended = grants.iter().filter(|grant| grant.ended < other.began).count();
        let begun = grants.iter().filter(|grant| grant.began < other.ended).count();
        let is_early = grants[..saw].iter().any(|grant| grant.began > other.ended);
        let is_late = grants[saw..].iter().any(|grant| grant.ended < other.began);
        if is_early || is_late || !(ended..=begun).contains(&saw) {
            return Err(format!("{other:?} saw {saw} grants, of {ended} to {begun}"));
        }
    }
    Ok(())
}

async fn run(server: &RedisServer, policy: Arc<Policy>) -> Vec<Seen> {
    let stores: Vec<_> = (0..HOSTS).map(|_| Arc::new(store(server))).collect();
    let clock = Arc::new(AtomicU64::new(0));
    let mut tasks = Vec::new();
    for task in 0..TASKS {
        let store = Arc::clone(&stores[task as usize % HOSTS]);
        let (policy, clock) = (Arc::clone(&policy), Arc::clone(&clock));
        tasks.push(tokio::spawn(async move {
            let mut seen = Vec::new();
            for turn in 0..EACH {
                let is_peek = (task + turn) % 5 == 0;
                let began = clock.fetch_add(1, Ordering::SeqCst);
                let asked = store.operate(&on(&policy, "hot"), NOW, u64::from(!is_peek)).await;
                let ended = clock.fetch_add(1, Ordering::SeqCst);
                let decision = asked.unwrap().decision;
                let (is_allowed, remaining) = (decision.is_allowed(), decision.remaining());
                seen.push(Seen { began, ended, is_peek, is_allowed, remaining });
            }
            seen
        }));
    }
    let mut seen = Vec::new();
    for task in tasks {
        seen.extend(task.await.unwrap());
    }
    seen
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_tasks_on_three_hosts_see_one_order() {
    let server = RedisServer::start().unwrap();
    let policy = policy("{ algorithm = 'fixed_window', limit = 1_500, period = '365d' }");
    let mut seen = run(&server, policy).await;
    let granted = seen.iter().filter(|seen| !seen.is_peek && seen.is_allowed).count();
    assert_eq!((seen.len() as u64, granted as u64), (TASKS * EACH, LIMIT));
    check(&seen).unwrap();

    // the check finds a unit that is granted twice, and an answer that is too old
    let last = seen.iter().rposition(|seen| seen.is_peek).unwrap();
    seen[last].remaining += 1;
    assert!(check(&seen).is_err(), "{:?}", seen[last]);
    seen[last].remaining -= 1;
    let first = seen.iter().position(|seen| !seen.is_peek && seen.is_allowed).unwrap();
    seen[first].remaining -= 1;
    assert!(check(&seen).is_err(), "{:?}", seen[first]);
}
