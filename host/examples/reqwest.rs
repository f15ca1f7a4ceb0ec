//! A client of reqwest that sends at most 5 requests at once, and then 50 a second, to each host:
//!
//! ```sh
//! cargo run -p tidegate --no-default-features --features reqwest --example reqwest -- http://localhost:3000
//! ```

use std::error::Error;
use std::time::Duration;

use reqwest_middleware::{ClientBuilder, ClientWithMiddleware};
use tidegate::reqwest::RateLimit;
use tidegate::{Policies, Store};

const POLICIES: &str = r#"
[policies.partner]
limits = [{ algorithm = "token_bucket", capacity = 5, rate = "50/s" }]
"#;

/// A client that waits for its own limit, and up to 10 s if a server answers with `Retry-After`.
pub fn client() -> Result<ClientWithMiddleware, Box<dyn Error>> {
    let policies = Policies::parse(POLICIES)?;
    let store = Store::memory(&policies, 1 << 20)?; // at most 1 MiB
    let limit = RateLimit::builder(store, &policies, "partner")
        .longest_wait(Duration::from_secs(10))
        .build()?;
    Ok(ClientBuilder::new(reqwest::Client::new()).with(limit).build())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "http://localhost:3000".to_owned());
    let client = client()?;
    for number in 1..=20 {
        let response = client.get(&url).send().await?;
        println!("{number}: {}", response.status());
    }
    Ok(())
}
