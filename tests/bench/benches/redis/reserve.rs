//! A cost that is known later, beside one that is known at once: `reserve` and `commit` beside a check of the same policy.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tidegate::clock;
use tidegate::gate::{Id, Micros, Operation, Policy, Request, Resolved};
use tidegate::store::Redis;
use tokio::task::JoinSet;

use crate::server::Server;
use crate::store::store;

const LIMIT: &str = "{ algorithm = 'token_bucket', capacity = 150_000_000, rate = '1/m' }";

/// How often checks and reservations take turns, because the pace of the machine changes from second to second.
const TURNS: u32 = 4;

/// Checks a second, and pairs of `reserve` and `commit` a second, by so many callers on so many keys.
pub(crate) async fn checks_and_pairs(
    server: &Server,
    (keys, callers): (usize, usize),
    length: Duration,
) -> Result<(f64, f64)> {
    server.flush().await?;
    let text = format!("reservations = {{ most = 16, remember = '1s' }}\nlimits = [{LIMIT}]");
    let policy = Arc::new(Policy::parse("reserving", &text)?);
    let keys = (0..keys).map(|key| Resolved::new(&policy, &format!("user:{key:08}")));
    let callers = Callers {
        store: store(server)?,
        keys: keys.collect::<Result<_, _>>()?,
        callers: u64::try_from(callers)?,
    };
    let mut best = (0.0_f64, 0.0_f64);
    for turn in 0..u64::from(TURNS) {
        best.0 = best.0.max(callers.per_second(false, turn, length / TURNS).await?);
        best.1 = best.1.max(callers.per_second(true, turn, length / TURNS).await?);
    }
    Ok(best)
}

#[derive(Clone)]
struct Callers {
    store: Arc<Redis>,
    keys: Arc<[Resolved]>,
    callers: u64,
}

impl Callers {
    async fn per_second(&self, reserves: bool, turn: u64, length: Duration) -> Result<f64> {
        let (began, mut tasks) = (Instant::now(), JoinSet::new());
        for caller in 0..self.callers {
            let (this, mut draws) = (self.clone(), fastrand::Rng::with_seed(caller));
            tasks.spawn(async move {
                let mut number = 0;
                while began.elapsed() < length {
                    let key = &this.keys[draws.usize(..this.keys.len())];
                    number += 1;
                    let id = Id([turn << 32 | caller, number]);
                    this.ask(key, id, reserves).await?;
                }
                anyhow::Ok(number)
            });
        }
        let mut asked = 0;
        while let Some(caller) = tasks.join_next().await {
            asked += caller??;
        }
        Ok(asked as f64 / began.elapsed().as_secs_f64())
    }

    async fn ask(&self, key: &Resolved, id: Id, reserves: bool) -> Result<()> {
        let request = Request::of(2);
        let request = match reserves {
            true => Request { lease: Some(id), hold: Micros(60_000_000), ..request },
            false => request,
        };
        let said = self.store.operate(key, clock::now(), request).await?;
        ensure!(said.decision.is_allowed(), "there are plenty, found {said:?}");
        if reserves {
            let _ = self.store.operate(key, clock::now(), Operation::Commit(id, 1)).await?;
        }
        Ok(())
    }
}
