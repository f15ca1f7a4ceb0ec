//! The client of the library, against every server.

use serde_json::json;
use tidegate::client::{Call, Client, ClientError, ClientOptions};
use tidegate_tests::{Served, TOKEN};

fn client(served: &Served, token: &str) -> Client {
    let deadline = std::time::Duration::from_secs(20);
    let options =
        ClientOptions { token: Some(token.to_owned()), deadline, ..ClientOptions::default() };
    Client::of_server(&served.url, options).unwrap()
}

fn run(work: impl Future<Output = Result<(), ClientError>>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(work).unwrap();
}

pub fn a_client_asks_for_decisions(served: &Served) {
    run(async {
        let client = client(served, TOKEN);
        let call = Call::new("day", "of the/client?ä").cost(2);
        assert_eq!(client.peek(&call).await?.limits.len(), 2);
        let first = client.check(&call).await?;
        assert_eq!((first.allowed, first.remaining, first.degraded), (true, 1, None));
        let second = client.check(&call).await?;
        assert!(!second.allowed && second.retry_after().is_some(), "{second:?}");
        assert_eq!(second.limits[0].name, "burst");
        Ok(())
    });
    let same = served.api.get("/v1/keys/day/of%20the%2Fclient%3F%C3%A4", &[]);
    assert_eq!(same.get("remaining"), json!(1), "the key is the one that HTTP names");
}

pub fn a_client_reserves_and_commits_once(served: &Served) {
    run(async {
        let client = client(served, TOKEN);
        let call = Call::new("orders", "of the client").cost(4);
        let reserved = client.reserve(&call).await?;
        let id = reserved.id.unwrap();
        for actual in [1, 3] {
            let committed = client.commit(&call.id(&id), actual).await?;
            assert_eq!((committed.charged, committed.late), (Some(1), false));
        }
        for _ in 0..3 {
            let answer = client.check(&call.cost(2).idempotency_key("taken once")).await?;
            assert_eq!((answer.allowed, answer.remaining), (true, 2));
        }
        let last = client.reserve(&call.cost(2)).await?.id.unwrap();
        assert_eq!(client.cancel(&call.id(&last)).await?.charged, Some(0));
        assert_eq!(client.peek(&call.cost(2)).await?.remaining, 0);
        assert_eq!(client.peek(&Call::new("orders", "of the client")).await?.remaining, 2);
        Ok(())
    });
}

pub fn a_client_holds_leases(served: &Served) {
    run(async {
        let client = client(served, TOKEN);
        let job = Call::new("jobs", "of the/client");
        let first = client.acquire(&job).await?.lease.unwrap();
        assert!(client.acquire(&job.id("se/cond")).await?.allowed);
        assert!(!client.acquire(&job.id("third")).await?.allowed);
        assert_eq!(client.renew(&job.id("se/cond")).await?.live, Some(true));
        assert_eq!(client.release(&job.id("se/cond")).await?.live, Some(true));
        assert_eq!(client.release(&job.id(&first)).await?.live, Some(true));
        assert_eq!(client.release(&job.id(&first)).await?.live, Some(false));
        Ok(())
    });
}

pub fn a_client_says_what_is_wrong_with_a_call(served: &Served) {
    run(async {
        let wrong = client(served, "another").check(&Call::new("day", "k")).await.unwrap_err();
        assert!(
            matches!(&wrong, ClientError::Refused { status: 401, problem, .. }
            if problem == "urn:tidegate:unauthorized"),
            "{wrong:?}"
        );
        let client = client(served, TOKEN);
        let unknown = client.check(&Call::new("none", "k")).await.unwrap_err();
        assert!(unknown.to_string().starts_with("404: `policy`: expected one of"), "{unknown}");
        let unnamed = client.renew(&Call::new("jobs", "k")).await.unwrap_err();
        assert_eq!(unnamed, ClientError::NoId);
        Ok(())
    });
}
