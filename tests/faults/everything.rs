//! None of these tests is quick.

#[path = "cluster.rs"]
mod cluster;
#[path = "host.rs"]
mod host;
#[path = "redis.rs"]
mod redis;
