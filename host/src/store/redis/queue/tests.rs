use tidegate_gate::Policy;

use super::*;

fn policy() -> Arc<Policy> {
    let limits = "{ algorithm = 'fixed_window', limit = 1, period = '1m', depth = 1 }";
    Arc::new(Policy::parse("p", &format!("limits = [{limits}]")).unwrap())
}

type Answer = oneshot::Receiver<Result<Verdict, StoreError>>;

/// Lines up for the key's home.
fn join(queues: &Queues, policy: &Arc<Policy>, key: &str) -> (Result<bool, StoreError>, Answer) {
    let (reply, answer) = oneshot::channel();
    let resolved = Resolved::new(policy, key).unwrap();
    let id = HomeId::of(&resolved);
    let question = Question { now: Timestamp(0), operation: 1.into(), reply };
    (queues.join(&id, Waiting { resolved, question }), answer)
}

fn home(policy: &Arc<Policy>, key: &str) -> HomeId {
    HomeId::of(&Resolved::new(policy, key).unwrap())
}

fn keys(departure: &Departure) -> Vec<&str> {
    departure.operations.iter().map(|waiting| waiting.resolved.key()).collect()
}

#[test]
fn a_home_has_an_entry_while_something_waits_or_is_served() {
    let (queues, policy) = (Queues::default(), policy());
    let id = home(&policy, "a");
    assert!(queues.landing(&id).is_none());
    let first = join(&queues, &policy, "a/1");
    assert!(first.0.unwrap(), "the first one starts a task");
    assert_eq!(keys(&queues.depart(&id).unwrap()), ["a/1"]);
    for key in ["a/2", "a/1"] {
        assert!(!join(&queues, &policy, key).0.unwrap(), "it is served");
    }
    let elsewhere = join(&queues, &policy, "b/1");
    assert!(elsewhere.0.unwrap());
    assert_eq!(keys(&queues.depart(&id).unwrap()), ["a/2", "a/1"]);
    assert!(queues.depart(&id).is_none());
    assert_eq!(queues.homes().len(), 1, "that of b");
    assert!(join(&queues, &policy, "a/1").0.unwrap(), "served anew");
}

#[test]
fn a_landing_is_over_when_all_that_came_before_has_departed_and_is_dropped() {
    let (queues, policy) = (Queues::default(), policy());
    let id = home(&policy, "a");
    let _answer = join(&queues, &policy, "a");
    let mut landing = queues.landing(&id).unwrap();
    let departure = queues.depart(&id).unwrap();
    assert_eq!(landing.try_recv(), Err(oneshot::error::TryRecvError::Empty));
    let mut later = queues.landing(&id).unwrap(); // the departure is under way
    drop(departure);
    assert_eq!(landing.try_recv(), Err(oneshot::error::TryRecvError::Closed));
    assert_eq!(later.try_recv(), Err(oneshot::error::TryRecvError::Empty));
    drop(queues.depart(&id).unwrap());
    assert_eq!(later.try_recv(), Err(oneshot::error::TryRecvError::Closed));
    assert!(queues.depart(&id).is_none());
}

#[test]
fn a_home_that_is_closed_tells_those_that_wait() {
    let (queues, policy) = (Queues::default(), policy());
    let (_, mut answer) = join(&queues, &policy, "a");
    queues.close(&home(&policy, "a"));
    assert!(matches!(answer.try_recv(), Err(oneshot::error::TryRecvError::Closed)));
    assert!(queues.homes().is_empty());
}

#[test]
fn a_key_takes_half_of_the_places_and_a_home_has_no_more_than_all() {
    let (queues, policy) = (Queues::default(), policy());
    let mut answers = Vec::new();
    for key in ["a/1", "a/2"] {
        for _ in 0..MOST_OF_A_KEY {
            let (joined, answer) = join(&queues, &policy, key);
            joined.unwrap();
            answers.push(answer);
        }
        assert_eq!(queues.overloaded(), 0);
        if key == "a/1" {
            let (joined, _) = join(&queues, &policy, key);
            let error = joined.unwrap_err().to_string();
            let found = "redis: \"a/1\": 8192 operations wait for the same state already";
            assert_eq!(error, found);
            queues.overloaded.store(0, Ordering::Relaxed);
        }
    }
    assert!(matches!(
        join(&queues, &policy, "a/3").0,
        Err(StoreError::Overloaded { most: MOST_WAITING, .. })
    ));
    assert_eq!(queues.overloaded(), 1);
    assert!(join(&queues, &policy, "b/1").0.unwrap(), "another home has places of its own");
}

#[test]
fn so_many_keys_depart_together_and_the_others_in_their_order_after_them() {
    let (queues, policy) = (Queues::default(), policy());
    let id = home(&policy, "a");
    let all: Vec<String> = (0..MOST_KEYS + 10).map(|key| format!("a/{key}")).collect();
    let again = all.iter().rev().take(20); // of each of the last ones a second time
    let asked: Vec<&str> = all.iter().chain(again).map(String::as_str).collect();
    let answers: Vec<Answer> = asked.iter().map(|key| join(&queues, &policy, key).1).collect();
    let _landing = queues.landing(&id);
    let first = queues.depart(&id).unwrap();
    assert_eq!(keys(&first), asked[..MOST_KEYS]);
    assert!(first.landings.is_empty(), "not all has departed");
    let second = queues.depart(&id).unwrap();
    assert_eq!(keys(&second), asked[MOST_KEYS..]);
    assert_eq!(second.landings.len(), 1);
    assert!(queues.depart(&id).is_none());
    drop(answers);
}
