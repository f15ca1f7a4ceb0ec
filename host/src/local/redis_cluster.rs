//! A private Redis Cluster.

use std::time::{Duration, Instant};

use ::redis::{Client, Cmd, FromRedisValue, cmd};
use anyhow::{Context, Result, bail};

use super::{RedisServer, at_a_port};

/// A private Redis Cluster, whose masters have all slots in equal parts. Its nodes listen on 127.0.0.1.
#[derive(Debug)]
pub struct RedisCluster {
    nodes: Vec<RedisServer>,
    ports: Vec<u16>,
    masters: usize,
}

impl RedisCluster {
    /// Starts so many masters, each with a replica or without one, and waits until they are a Cluster. A master that is
    /// silent for 15 s is replaced by its replica.
    ///
    /// # Errors
    /// Returns an error if the program is not installed, or the nodes do not become a Cluster.
    pub fn start(masters: u16, has_replicas: bool) -> Result<Self> {
        let nodes = if has_replicas { masters.saturating_mul(2) } else { masters };
        let mut cluster =
            Self { nodes: Vec::new(), ports: Vec::new(), masters: usize::from(masters) };
        for _ in 0..nodes {
            let (node, port) = start_node()?;
            cluster.nodes.push(node);
            cluster.ports.push(port);
        }
        cluster.join().context("the nodes do not become a Cluster")?;
        Ok(cluster)
    }

    /// The URL of this Cluster. It names one node.
    #[must_use]
    pub fn url(&self) -> String {
        let port = self.ports.first().copied().unwrap_or_default();
        format!("redis+cluster://127.0.0.1:{port}")
    }

    /// The nodes: first the masters, then the replica of each. A failover changes what they are.
    #[must_use]
    pub fn nodes(&self) -> &[RedisServer] {
        &self.nodes
    }

    /// The same, to be stopped and started.
    #[must_use]
    pub fn nodes_mut(&mut self) -> &mut [RedisServer] {
        &mut self.nodes
    }

    /// The ports of the nodes.
    #[must_use]
    pub fn ports(&self) -> &[u16] {
        &self.ports
    }

    /// Has masters replaced that are silent for this time. A node that is started again goes by its 15 s.
    ///
    /// # Errors
    /// Returns an error if a node does not answer.
    pub fn set_node_timeout(&self, timeout: Duration) -> Result<()> {
        let (name, millis) = ("cluster-node-timeout", timeout.as_millis().to_string());
        self.nodes
            .iter()
            .try_for_each(|node| ask(node, cmd("CONFIG").arg("SET").arg(name).arg(&millis)))
    }

    fn join(&self) -> Result<()> {
        let masters = self.masters;
        let slots: Vec<u16> = (0..SLOTS).collect();
        let part = slots.len().div_ceil(masters.max(1));
        let mut ids: Vec<String> = Vec::new();
        for (n, node) in self.nodes.iter().enumerate() {
            ids.push(ask(node, cmd("CLUSTER").arg("MYID"))?);
            let () = ask(node, cmd("CLUSTER").arg("SET-CONFIG-EPOCH").arg(n.saturating_add(1)))?;
        }
        for (node, slots) in self.nodes.iter().zip(slots.chunks(part)) {
            let () = ask(node, cmd("CLUSTER").arg("ADDSLOTS").arg(slots))?;
        }
        // each meets each, so that none has to hear of another one
        for node in &self.nodes {
            for port in &self.ports {
                let () = ask(node, cmd("CLUSTER").arg("MEET").arg("127.0.0.1").arg(*port))?;
            }
        }
        let all = format!("cluster_known_nodes:{}\r\n", self.nodes.len());
        self.until(|node| Ok(ask::<String>(node, cmd("CLUSTER").arg("INFO"))?.contains(&all)))?;
        for (replica, master) in self.nodes.iter().skip(masters).zip(&ids) {
            // it may not know yet that the other one is a master
            let replicate = || ask::<()>(replica, cmd("CLUSTER").arg("REPLICATE").arg(master));
            let began = Instant::now();
            while let Err(error) = replicate() {
                wait(began).context(error)?;
            }
        }
        let replicas = self.nodes.len().saturating_sub(masters);
        self.until(|node| {
            let state: String = ask(node, cmd("CLUSTER").arg("INFO"))?;
            let nodes: String = ask(node, cmd("CLUSTER").arg("NODES"))?;
            let replication: String = ask(node, cmd("INFO").arg("replication"))?;
            Ok(state.contains("cluster_state:ok")
                && nodes.matches("slave").count() == replicas
                && !replication.contains("master_link_status:down"))
        })
    }

    /// Waits until this is true of all nodes.
    fn until(&self, is_true: impl Fn(&RedisServer) -> Result<bool>) -> Result<()> {
        let began = Instant::now();
        for node in &self.nodes {
            while !is_true(node)? {
                wait(began)?;
            }
        }
        Ok(())
    }
}

/// The number of slots of a Cluster.
const SLOTS: u16 = 16_384;

/// Starts a node. It listens for clients on a port, and for other nodes 10,000 ports higher: Redis 6.2 cannot be given another port for
/// them.
fn start_node() -> Result<(RedisServer, u16)> {
    at_a_port(|port| {
        let port_text = port.to_string();
        let options = ["--cluster-enabled", "yes", "--bind", "127.0.0.1", "--port", &port_text];
        let replicas = ["--cluster-replica-validity-factor", "0"]; // whatever it has is better than nothing
        let replication = ["--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0"];
        let options = [&options[..], &replicas, &replication].concat();
        Ok((RedisServer::start_with(&options)?, port))
    })
}

fn ask<T: FromRedisValue>(node: &RedisServer, command: &Cmd) -> Result<T> {
    let mut connection = Client::open(node.url())?.get_connection()?;
    Ok(command.query(&mut connection)?)
}

fn wait(began: Instant) -> Result<()> {
    if began.elapsed() > Duration::from_secs(30) {
        bail!("not within 30 s");
    }
    std::thread::sleep(Duration::from_millis(10));
    Ok(())
}
