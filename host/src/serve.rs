//! The decision API over HTTP: [`serve`] reads requests, asks the store and writes responses.
//!
//! ```no_run
//! use tidegate::http::{Access, Tokens};
//! use tidegate::serve::{Bounds, Files, Reload, Service, Watch, serve};
//! use tidegate::{Policies, Store};
//! use tokio::net::TcpListener;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let files = Files::new(std::fs::read_to_string("policies.toml")?);
//! let policies = Policies::parse(files.in_force())?;
//! let store = Store::memory(&policies, 256 << 20)?;
//! let tokens = Tokens { decisions: Some("secret".to_owned()), ..Tokens::default() };
//! let access = Access::new(&policies, tokens)?;
//! let (bounds, watch) = (Bounds::default(), Watch::default());
//! let reload = Reload::default();
//! let service = Service { policies, files, store, access, bounds, watch, reload };
//! let listener = TcpListener::bind("127.0.0.1:8080").await?;
//! serve(service, vec![listener], std::future::pending()).await; // until the process ends
//! # Ok(())
//! # }
//! ```

mod calendar;
mod connection;
mod durations;
mod files;
mod head;
mod log;
mod metrics;
mod options;
mod places;
mod readiness;
mod reload;
mod room;
mod server;
mod spans;
mod stream;
#[cfg(test)]
mod tests;
mod tls;
mod watched;

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tidegate_gate::Policies;
use tidegate_http::Access;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::{sleep, timeout};

use crate::clock;
use crate::store::Store;
use files::Swap;
pub use files::{Files, accepts};
pub use log::AUDIT;
pub use options::{Bounds, Watch};
pub use reload::Reload;
use server::Server;
pub use tls::Tls;

/// How often the server forgets expired states.
const SWEEP_EVERY: Duration = Duration::from_secs(5);

/// How long requests under way may take after the server is stopped.
const DRAIN_FOR: Duration = Duration::from_secs(5);

/// How long the server then gives back the units that it holds.
const GIVE_BACK_FOR: Duration = Duration::from_secs(2);

/// Delay before retrying `accept`, for example when the process is out of file descriptors.
const ACCEPT_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// A decision API to serve.
#[derive(Debug)]
pub struct Service {
    /// The policies to decide by.
    pub policies: Policies,
    /// The file of the policies, which callers with the token for administration may replace.
    pub files: Files,
    /// The store that keeps the states.
    pub store: Store,
    /// Which callers may use the API.
    pub access: Access,
    /// How much of the server clients may use.
    pub bounds: Bounds,
    /// What the server tells about itself.
    pub watch: Watch,
    /// What the server reads again while it runs.
    pub reload: Reload,
}

/// Serves at all listeners until `stop` resolves, then answers the requests under way for up to 5 s and returns. What happens
/// meanwhile goes to the subscriber of `tracing`.
pub async fn serve(
    service: Service,
    mut listeners: Vec<TcpListener>,
    stop: impl Future<Output = ()> + Send,
) {
    let Service { policies, files, store, access, bounds, watch: told, reload } = service;
    let swap = Swap::new((Arc::new(policies), access, store), files);
    let server = Arc::new(Server::new(swap, bounds, &told));
    server.log.start(&server.swap.in_force().tag);
    if let Err(error) = server.swap.store().await {
        server.log.error(&error);
    }
    let sweeper = tokio::spawn(sweep(Arc::clone(&server)));
    let reloader = tokio::spawn(reload::run(Arc::clone(&server), reload.clone()));
    let (stopping, _) = watch::channel(false);
    let mut stop = pin!(stop);
    loop {
        let accepted = tokio::select! {
            accepted = accept(&mut listeners, &server) => accepted,
            () = &mut stop => break,
        };
        match accepted {
            Ok((stream, peer, place)) => {
                let (server, tls) = (Arc::clone(&server), reload.tls().cloned());
                let stopping = stopping.subscribe();
                tokio::spawn(async move {
                    connection::talk(server, tls, (stream, peer), stopping).await;
                    drop(place);
                });
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {} // the client has gone
            Err(error) => {
                server.log.error(&error);
                sleep(ACCEPT_AGAIN_AFTER).await;
            }
        }
    }
    drop(listeners);
    reloader.abort();
    let _ = stopping.send(true); // without a receiver no connection is open
    // connections that take longer are dropped
    let is_drained = timeout(DRAIN_FOR, stopping.closed()).await.is_ok();
    sweeper.abort();
    let units = match &server.swap.in_force().store {
        Store::Redis(redis) => timeout(GIVE_BACK_FOR, redis.give_back()).await.ok(),
        Store::Memory { .. } => Some(0), // no other server could use them
    };
    server.log.stop(is_drained, units);
}

/// Accepts the next connection, and waits until it has a place.
async fn accept(
    listeners: &mut [TcpListener],
    server: &Server,
) -> io::Result<(TcpStream, SocketAddr, OwnedSemaphorePermit)> {
    if !listeners.is_empty() {
        listeners.rotate_left(1); // a busy address does not keep the others waiting
    }
    let (stream, peer) = poll_fn(|context| {
        let mut accepted = listeners.iter().map(|listener| listener.poll_accept(context));
        accepted.find(Poll::is_ready).unwrap_or(Poll::Pending)
    })
    .await?;
    let _ = stream.set_nodelay(true); // answers would only come later without it
    let place = server.places.take(&server.log).await?;
    Ok((stream, peer, place))
}

async fn sweep(server: Arc<Server>) {
    let mut ticks = tokio::time::interval(SWEEP_EVERY);
    loop {
        ticks.tick().await;
        let in_force = server.swap.in_force();
        in_force.store.announce(&in_force.policies);
        server.note_uncounted(&in_force.store);
        in_force.store.sweep(clock::now());
        server.log.flush();
    }
}
