//! Sentinels, which know the master of a Redis.

use std::sync::atomic::AtomicBool;

use futures_util::future::select_ok;
use redis::{
    ConnectionAddr, ErrorKind, RedisConnectionInfo, RedisError, RedisResult, ServerErrorKind,
    Value, cmd,
};
use tokio::time::timeout;

use super::dialer::{Dialer, Open};

/// The sentinels of a master.
pub(super) struct Sentinels {
    pub(super) servers: Vec<ConnectionAddr>,
    pub(super) login: RedisConnectionInfo,
    /// The name that they have for the master.
    pub(super) master: String,
}

impl Sentinels {
    /// Connects to the master that the first sentinel to answer names.
    ///
    /// It must say itself that it is one: a sentinel may not have heard of a failover yet, and a replica answers reads.
    pub(super) async fn connect(
        &self,
        dialer: &Dialer,
        login: &RedisConnectionInfo,
        in_handshake: &AtomicBool,
    ) -> RedisResult<Open> {
        let asked = self.servers.iter().map(|sentinel| Box::pin(self.ask(dialer, sentinel)));
        let (master, _) = select_ok(asked).await?;
        let open = dialer.connect(&master, login, in_handshake).await?;
        match role(dialer, &open).await {
            Ok(Some(role)) if role != "master" => Err(RedisError::from((
                ErrorKind::Server(ServerErrorKind::ReadOnly),
                "the server that a sentinel names as the master is a replica",
            ))),
            // a user without this right trusts the sentinel
            Err(error) if !matches!(error.kind(), ErrorKind::Server(ServerErrorKind::NoPerm)) => {
                Err(error)
            }
            _ => Ok(open),
        }
    }

    async fn ask(&self, dialer: &Dialer, sentinel: &ConnectionAddr) -> RedisResult<ConnectionAddr> {
        let asked = async {
            let mut open = dialer.connect(sentinel, &self.login, &AtomicBool::new(false)).await?;
            let mut question = cmd("SENTINEL");
            question.arg("GET-MASTER-ADDR-BY-NAME").arg(&self.master);
            question.query_async(&mut open.connection).await
        };
        let told: Option<(String, u16)> = timeout(dialer.deadline, asked).await.map_err(late)??;
        let (host, port) = told.ok_or_else(|| {
            let detail = format!("{:?}", self.master);
            let kind = ErrorKind::MasterNameNotFoundBySentinel;
            RedisError::from((kind, "the sentinels know no master of this name", detail))
        })?;
        Ok(ConnectionAddr::Tcp(host, port))
    }
}

/// What a server says that it is.
async fn role(dialer: &Dialer, open: &Open) -> RedisResult<Option<String>> {
    let mut connection = open.connection.clone();
    let question = cmd("ROLE");
    let asked = question.query_async(&mut connection);
    let told: Vec<Value> = timeout(dialer.deadline, asked).await.map_err(late)??;
    told.into_iter().next().map(redis::from_redis_value).transpose().map_err(RedisError::from)
}

fn late(elapsed: tokio::time::error::Elapsed) -> RedisError {
    std::io::Error::from(elapsed).into()
}
