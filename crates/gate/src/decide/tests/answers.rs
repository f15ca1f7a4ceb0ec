//! Which limit an answer tells of, and of whose lease.

use super::*;

#[test]
fn of_limits_with_the_same_rest_the_first_one_is_told() {
    let limit = |limit, period| {
        format!("{{ algorithm = 'fixed_window', limit = {limit}, period = '{period}' }}")
    };
    let (day, second) = (limit(5, "1d"), limit(3, "1s"));
    for (limits, told) in [([&day, &second], 5), ([&second, &day], 3)] {
        let text = format!("limits = [{}, {}]", limits[0], limits[1]);
        let policy = Policy::parse("p", &text).unwrap();
        let mut words = vec![0; policy.limits().words()];
        assert!(
            policy.limits().decide(&mut words, Timestamp(0), &Request::of(2)).unwrap().is_allowed()
        );
        let now = Timestamp(1_000_000);
        let looked = policy.limits().decide(&mut words, now, &Request::of(0)).unwrap();
        assert_eq!((looked.remaining(), looked.limit()), (3, told), "{text}");
    }
}

#[test]
fn a_renewal_tells_what_its_own_owner_may_still_open() {
    let text = "limits = [{ algorithm = 'connections', limit = 5, max_owners = 1 }]";
    let policy = Policy::parse("p", text).unwrap();
    let (limits, owner, now) = (policy.limits(), Id([1, 0]), Timestamp(7));
    let mut words = vec![0; limits.words()];
    let open = Request { lease: Some(owner), ..Request::of(1) };
    assert!(limits.decide(&mut words, now, &open).unwrap().is_allowed());
    let renewed = limits.operate(&mut words, now, &Operation::Heartbeat(owner)).unwrap();
    assert_eq!(renewed.decision.remaining(), 4, "there is no room for another owner alone");
}

#[test]
fn a_refusal_tells_what_is_left_after_it_was_counted() {
    let text = "limits = [
        { name = 'log', algorithm = 'sliding_log', rates = ['5/m'], count_denied = true },
        { name = 'bucket', algorithm = 'token_bucket', capacity = 100, rate = '1/s' },
    ]";
    let policy = Policy::parse("p", text).unwrap();
    let (limits, now) = (policy.limits(), Timestamp(0));
    let mut words = vec![0; limits.words()];
    assert!(limits.decide(&mut words, now, &Request::of(3)).unwrap().is_allowed());
    let refused = limits.operate(&mut words, now, &3.into()).unwrap();
    assert!(!refused.decision.is_allowed());
    assert_eq!(refused.limits[0].remaining(), 0, "the refused units count too");
    assert_eq!(refused.decision.remaining(), 0);
    let looked = limits.operate(&mut words, now, &0.into()).unwrap();
    assert_eq!(looked.decision.remaining(), 0);
}

#[test]
fn the_answer_tells_of_the_payer_with_the_most_left_or_of_the_shortest_wait() {
    let text = "limits = [
      { name = 'plan', algorithm = 'fixed_window', limit = 4, period = '1h', payer = true },
      { name = 'credits', algorithm = 'token_bucket', capacity = 9, rate = '1/s', payer = true },
    ]";
    let limits = Policy::parse("p", text).unwrap().limits().clone();
    let mut words = vec![0; limits.words()];
    let mut ask = |cost: u64| limits.operate(&mut words, Timestamp(0), &cost.into()).unwrap();
    let counting = |verdict: &crate::Verdict| {
        limits.counting(verdict).map(|(named, _)| named.name.clone()).collect::<Vec<_>>()
    };
    let _ = ask(5); // by the credits
    let tied = ask(0);
    assert_eq!((tied.decision.limit(), tied.decision.remaining()), (4, 4), "of two the first");
    let _ = (ask(2), ask(4));
    let granted = ask(0);
    assert_eq!((counting(&granted), granted.decision.remaining()), (vec!["plan".into()], 2));
    let refused = ask(3);
    assert_eq!(counting(&refused), ["credits"], "in 3 s, though it has less left");
}
