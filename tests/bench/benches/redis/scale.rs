//! The store on more machines and with more keys: one master and three, and up to millions of keys.

use std::time::Duration;

use anyhow::Result;

use crate::server::Server;
use crate::store::{Load, Measured, plenty};
use crate::table::{Figure, Goal, Row, Table};

/// The masters of each Cluster.
const MASTERS: [u16; 2] = [1, 3];

/// How many times the callers of all other rows ask each Cluster too: callers are divided among masters, so with few of them the
/// callers are the limit, and not the machine.
const MORE_CALLERS: usize = 4;

/// The numbers of keys, beside that of all other rows.
const SIZES: [usize; 2] = [10_000, 1_000_000];

/// What was measured.
pub(crate) struct Scale {
    /// Of each number of callers, Clusters of one master and of three.
    clusters: Vec<(usize, [Measured; 2])>,
    sizes: Vec<(usize, Measured)>,
}

impl Scale {
    /// Each Cluster has so many keys. `more` is one more number of keys.
    pub(crate) async fn measure(
        server: &Server,
        (keys, callers): (usize, usize),
        more: Option<usize>,
        section: Duration,
    ) -> Result<Self> {
        let [one, three] = MASTERS;
        let mut clusters = Vec::new();
        for callers in [callers, MORE_CALLERS * callers] {
            let measured = [
                on_cluster(one, (keys, callers), section).await?,
                on_cluster(three, (keys, callers), section).await?,
            ];
            clusters.push((callers, measured));
        }
        let mut sizes = Vec::new();
        for size in SIZES.into_iter().chain(more) {
            let load = Load::new(server, plenty("sizes")?, size, callers)?;
            sizes.push((size, load.measure(server, section).await?));
        }
        server.flush().await?;
        Ok(Self { clusters, sizes })
    }

    /// `one_server` is what one server did with as many keys as each Cluster.
    pub(crate) fn groups(
        &self,
        table: &mut Table,
        one_server: &Measured,
        (keys, callers): (usize, usize),
    ) {
        let rate = |measured: &Measured| Figure::PerSecond(measured.per_second());
        for (own_callers, clusters) in &self.clusters {
            let [one, _] = clusters;
            for (masters, cluster) in MASTERS.into_iter().zip(clusters) {
                let goal = if masters > 1 { Goal::AtLeast(0.9) } else { Goal::Unset };
                let mut row = cluster.rate();
                if *own_callers == callers {
                    row = row.beside("one server", rate(one_server), goal);
                }
                if masters > 1 {
                    row = row.beside("a Cluster of one master", rate(one), goal);
                }
                table.group(
                    &format!("Cluster of {masters}, {keys} keys, {own_callers} callers"),
                    rows(row, cluster),
                );
            }
        }
        for (size, measured) in &self.sizes {
            table.group(
                &format!("strict, {size} keys, {callers} callers"),
                rows(measured.rate(), measured),
            );
        }
    }
}

async fn on_cluster(
    masters: u16,
    (keys, callers): (usize, usize),
    section: Duration,
) -> Result<Measured> {
    let cluster = Server::cluster(masters).await?;
    let load = Load::new(&cluster, plenty("cluster")?, keys, callers)?;
    let measured = load.measure(&cluster, section).await?;
    Ok(measured.better(load.measure(&cluster, section).await?))
}

fn rows(rate: Row, measured: &Measured) -> Vec<Row> {
    let mut rows = vec![rate, measured.time("p50", 0.5), measured.time("p99", 0.99)];
    rows.extend(measured.costs());
    rows.push(measured.bytes_a_key());
    rows
}
