//! `tidegate serve`, and the layer for services of tower, beside what the same libraries answer without them.
//!
//! Each server has one thread, and so have the callers. Server and baseline are measured in turns, twice. The better figure of two
//! counts, because the machine may be shared.

#[path = "../common/arguments.rs"]
mod arguments;
#[path = "../common/load.rs"]
mod load;
mod servers;
#[path = "../common/table.rs"]
#[expect(dead_code, reason = "the table of the Redis store has figures of more kinds")]
mod table;

use std::time::Duration;

use anyhow::Result;
use mimalloc::MiMalloc;
use tidegate::local::RedisServer;
use tokio::runtime::Builder;

use crate::arguments::arguments;
use crate::load::Load;
use crate::table::{Figure, Goal, Row, Table};

/// The command's allocator, for all servers here.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

const CHECK: Load = Load {
    path: "/v1/check",
    policy: "plenty",
    keys: 10_000,
    expected: "\"allowed\":true",
    has_cf: false,
};
const HELLO: Load = Load { path: "/", policy: "", keys: 1, expected: "hello", has_cf: false };

const CONSTANT: &str = "the same answer as a constant";

fn main() -> Result<()> {
    let (section, json) = arguments(std::env::args().skip(1))?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let table = runtime.block_on(measure(section))?;
    print!("{table}");
    json.map_or(Ok(()), |file| table.write_json(&file))
}

async fn measure(section: Duration) -> Result<Table> {
    let redis = RedisServer::start()?;
    let memory = servers::tidegate(None)?;
    let on_redis = servers::tidegate(Some(redis.url()))?;
    let constant = servers::constant(CHECK.first(&memory).await?)?;
    let mut table = Table::of("serve");

    let [in_memory, of_constant, in_redis] =
        rates(CHECK, [&memory, &constant, &on_redis], section).await?;
    let beside = |what, rate, baseline, than, goal| {
        Row::new(what, Figure::PerSecond(rate)).beside(
            baseline,
            Figure::PerSecond(than),
            Goal::AtLeast(goal),
        )
    };
    table.group(
        "POST /v1/check, 10,000 keys, 32 connections",
        vec![
            beside("memory", in_memory, CONSTANT, of_constant, 0.85),
            beside("Redis", in_redis, "memory", in_memory, 0.6),
        ],
    );

    let late = |url, rate: f64| CHECK.p99(url, rate / 2.0, section);
    let constant_late = late(&constant, of_constant).await?;
    let row = |what, late, goal| {
        Row::new(what, Figure::Time(late)).beside(CONSTANT, Figure::Time(constant_late), goal)
    };
    table.group(
        "p99 at half of its load",
        vec![
            row("memory", late(&memory, in_memory).await?, Goal::AtMost(1.5)),
            row("Redis", late(&on_redis, in_redis).await?, Goal::Unset),
        ],
    );

    let [handler, limited, peer] = servers::axum()?;
    let [handler, limited, peer] = rates(HELLO, [&handler, &limited, &peer], section).await?;
    let row = beside("limited by the layer", limited, "the handler alone", handler, 0.9);
    let row = row.beside("tower_governor", Figure::PerSecond(peer), Goal::AtLeast(1.0));
    table.group("an empty handler of axum, 32 connections", vec![row]);
    Ok(table)
}

/// The better of two rates of each server.
async fn rates<const N: usize>(load: Load, urls: [&str; N], section: Duration) -> Result<[f64; N]> {
    let mut best = [0.0_f64; N];
    for _ in 0..2 {
        for (url, best) in urls.iter().zip(&mut best) {
            *best = best.max(load.measure(url, section).await?);
        }
    }
    Ok(best)
}
