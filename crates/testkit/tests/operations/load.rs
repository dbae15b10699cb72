//! Row L-10: pages that are polled without end do not delay pushes.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use testkit::load::{self, Ask};

use crate::world::{World, plan};

const PROXIES: usize = 200;

#[test]
fn pages_that_are_polled_do_not_delay_pushes() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(run()).unwrap_or_else(|e| panic!("{e:#}"));
}

async fn run() -> Result<()> {
    let world = World::new(&plan(20, PROXIES), &[])?;
    let mut swarm = world.swarm().await?;
    let ask = Ask::new(world.monitoring, "localhost", "/debug/syncz");
    let poll = tokio::spawn(async move {
        let mut slowest = Duration::ZERO;
        for _ in 0..40 {
            let began = Instant::now();
            let answer = load::one(&ask).await?;
            ensure!(answer.status == 200, "{}", answer.status);
            slowest = slowest.max(began.elapsed());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(slowest)
    });
    for round in 0..5 {
        swarm.obey(&format!("mark polled-{round} all")).await?;
        world.write("shared.yaml", &shared(round))?;
        let settled = swarm.obey("settle 10000 100 20000").await?;
        ensure!(settled["settled"] == true && settled["missed"] == 0, "a push was late: {settled}");
    }
    let slowest = poll.await??;
    // Generous for a debug build on a busy machine; a page that waited for pushes, or pushes for pages, would take far longer.
    ensure!(slowest < Duration::from_secs(5), "syncz took {slowest:?}");
    Ok(())
}

/// Seen by every proxy, scoped or not.
fn shared(round: usize) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: polled, namespace: istio-system}}\n\
         spec: {{clusterIP: 10.96.255.{}, ports: [{{name: http, port: 80}}]}}\n",
        round + 10
    )
}
