use std::sync::Arc;
use std::time::{Duration, Instant};
use tidegate::clock;
use tidegate::gate::{Policy, Resolved};
use tidegate::local::RedisServer;
use tidegate::store::{Redis, RedisOptions};
#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    tokio::spawn(run()).await.unwrap();
}
async fn run() {
    let arg = |n: usize, d: usize| std::env::args().nth(n).map_or(d, |a| a.parse().unwrap());
    let (keys, callers, secs) = (arg(1, 100_000), arg(2, 256), arg(3, 5));
    let server = RedisServer::start().unwrap();
    let policy = Arc::new(
        Policy::parse(
            "p",
            "limits = [{ algorithm = 'token_bucket', capacity = 150_000_000, rate = '1/m' }]",
        )
        .unwrap(),
    );
    let keys: Arc<[Resolved]> =
        (0..keys).map(|k| Resolved::new(&policy, &format!("user:{k:08}")).unwrap()).collect();
    let store = Arc::new(Redis::new(server.url(), RedisOptions::default()).unwrap());
    for chunk in keys.chunks(1000) {
        let mut set = tokio::task::JoinSet::new();
        for k in chunk {
            let (store, k) = (store.clone(), k.clone());
            set.spawn(async move {
                store.operate(&k, clock::now(), 1).await.unwrap();
            });
        }
        set.join_all().await;
    }
    let end = Instant::now() + Duration::from_secs(secs as u64);
    let began = Instant::now();
    let tasks: Vec<_> = (0..callers)
        .map(|t| {
            let (store, keys) = (store.clone(), keys.clone());
            tokio::spawn(async move {
                let (mut x, mut n, mut errors) = (t as u64 * 7919 + 1, 0u64, 0u64);
                while Instant::now() < end {
                    x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    let key = &keys[(x >> 33) as usize % keys.len()];
                    match store.operate(key, clock::now(), 1).await {
                        Ok(_) => n += 1,
                        Err(e) => {
                            errors += 1;
                            if errors == 1 {
                                eprintln!("{e}")
                            }
                        }
                    }
                }
                (n, errors)
            })
        })
        .collect();
    let mut n = 0;
    let mut e = 0;
    for t in tasks {
        let (a, b) = t.await.unwrap();
        n += a;
        e += b;
    }
    println!("{:.0}/s errors {e}", n as f64 / began.elapsed().as_secs_f64());
}
