use futures_util::FutureExt;
use tidegate_gate::Policy;

use super::*;
use crate::store::{Redis, RedisOptions};

fn policy() -> Arc<Policy> {
    let limits = "{ algorithm = 'fixed_window', limit = 1, period = '1m', depth = 1 }";
    Arc::new(Policy::parse("p", &format!("limits = [{limits}]")).unwrap())
}

type Answer = oneshot::Receiver<Result<Verdict, StoreError>>;

/// Adds an operation on the key to the queue of its home.
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

fn keys(batch: &Batch) -> Vec<&str> {
    batch.operations.iter().map(|waiting| waiting.resolved.key()).collect()
}

#[test]
fn a_home_has_an_entry_while_something_waits_or_is_served() {
    let (queues, policy) = (Queues::default(), policy());
    let id = home(&policy, "a");
    assert!(queues.when_written(&id).is_none());
    let first = join(&queues, &policy, "a/1");
    assert!(first.0.unwrap(), "the first operation starts a task");
    assert_eq!(keys(&queues.take_batch(&id).unwrap()), ["a/1"]);
    for key in ["a/2", "a/1"] {
        assert!(!join(&queues, &policy, key).0.unwrap(), "a task serves the home");
    }
    let elsewhere = join(&queues, &policy, "b/1");
    assert!(elsewhere.0.unwrap());
    assert_eq!(keys(&queues.take_batch(&id).unwrap()), ["a/2", "a/1"]);
    assert!(queues.take_batch(&id).is_none());
    assert_eq!(queues.homes().len(), 1, "only the home of b");
    assert!(join(&queues, &policy, "a/1").0.unwrap(), "the home needs a new task");
}

#[test]
fn when_written_resolves_once_the_batch_with_all_earlier_operations_is_dropped() {
    let (queues, policy) = (Queues::default(), policy());
    let id = home(&policy, "a");
    let _answer = join(&queues, &policy, "a");
    let mut written = queues.when_written(&id).unwrap();
    let batch = queues.take_batch(&id).unwrap();
    assert_eq!(written.try_recv(), Err(oneshot::error::TryRecvError::Empty));
    let mut later = queues.when_written(&id).unwrap(); // the batch is under way
    drop(batch);
    assert_eq!(written.try_recv(), Err(oneshot::error::TryRecvError::Closed));
    assert_eq!(later.try_recv(), Err(oneshot::error::TryRecvError::Empty));
    drop(queues.take_batch(&id).unwrap());
    assert_eq!(later.try_recv(), Err(oneshot::error::TryRecvError::Closed));
    assert!(queues.take_batch(&id).is_none());
}

#[test]
fn closing_a_home_tells_the_callers_that_wait() {
    let (queues, policy) = (Queues::default(), policy());
    let (_, mut answer) = join(&queues, &policy, "a");
    queues.close(&home(&policy, "a"));
    assert!(matches!(answer.try_recv(), Err(oneshot::error::TryRecvError::Closed)));
    assert!(queues.homes().is_empty());
}

#[test]
fn a_key_takes_at_most_half_of_the_places_of_its_home() {
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
            let found = "redis: \"a/1\": 8192 operations are already waiting for the same state";
            assert_eq!(error, found);
            queues.overloaded.store(0, Ordering::Relaxed);
        }
    }
    assert!(matches!(
        join(&queues, &policy, "a/3").0,
        Err(StoreError::Overloaded { most: MOST_WAITING, .. })
    ));
    assert_eq!(queues.overloaded(), 1);
    assert!(join(&queues, &policy, "b/1").0.unwrap(), "another home has its own places");
}

#[test]
fn a_batch_has_a_bounded_number_of_keys_and_the_next_one_keeps_the_order() {
    let (queues, policy) = (Queues::default(), policy());
    let id = home(&policy, "a");
    let all: Vec<String> = (0..MOST_KEYS + 10).map(|key| format!("a/{key}")).collect();
    let again = all.iter().rev().take(20); // the last 20 keys have a second operation
    let asked: Vec<&str> = all.iter().chain(again).map(String::as_str).collect();
    let answers: Vec<Answer> = asked.iter().map(|key| join(&queues, &policy, key).1).collect();
    let _written = queues.when_written(&id);
    let first = queues.take_batch(&id).unwrap();
    assert_eq!(keys(&first), asked[..MOST_KEYS]);
    assert!(first.when_written.is_empty(), "some operations still wait");
    let second = queues.take_batch(&id).unwrap();
    assert_eq!(keys(&second), asked[MOST_KEYS..]);
    assert_eq!(second.when_written.len(), 1);
    assert!(queues.take_batch(&id).is_none());
    drop(answers);
}

/// A runtime that polls tasks only while it blocks on a future.
fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
fn an_operation_that_is_never_polled_leaves_nothing_behind() {
    let policy = policy();
    let (store, key) = (unreachable(), Resolved::new(&policy, "a/1").unwrap());
    let before = Arc::strong_count(&policy);
    drop(store.operate(&key, Timestamp(0), 1));
    assert!(store.shared.queues.homes().is_empty());
    assert_eq!((Arc::strong_count(&store.shared), Arc::strong_count(&policy)), (1, before));
}

#[test]
fn a_home_whose_task_ends_before_its_first_poll_is_closed() {
    let policy = policy();
    let (store, key) = (unreachable(), Resolved::new(&policy, "a/1").unwrap());
    let before = Arc::strong_count(&policy);
    let mut operation = std::pin::pin!(store.operate(&key, Timestamp(0), 1));
    let ended = runtime();
    // the operation starts a task, and the runtime ends before it polls the task
    assert!(ended.block_on(async { operation.as_mut().now_or_never() }).is_none());
    assert_eq!(store.shared.queues.homes().len(), 1);
    drop(ended);
    assert!(store.shared.queues.homes().is_empty(), "the home waits for a task that is gone");
    assert_eq!((Arc::strong_count(&store.shared), Arc::strong_count(&policy)), (1, before));
    let answer = operation.now_or_never();
    assert!(matches!(answer, Some(Err(StoreError::Abandoned))), "{answer:?}");
    // the next operation starts a task of its own
    let next = runtime().block_on(store.operate(&key, Timestamp(0), 1));
    assert!(matches!(next, Err(StoreError::Redis(_))), "{next:?}");
    assert!(store.shared.queues.homes().is_empty());
}

/// A store whose Redis nobody can reach.
fn unreachable() -> Redis {
    Redis::new("redis://127.0.0.1:1", RedisOptions::default()).unwrap()
}
