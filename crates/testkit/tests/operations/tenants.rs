//! Row A-09 by HTTP: what callers from other addresses than loopback get of the pages, with real tokens and proxies.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use anyhow::{Context, ensure};
use serde_json::Value;
use testkit::http_client::{self, HttpRequest};
use testkit::skip;

use crate::doctor::run;
use crate::served::{ServedMesh, Setup, plan};

/// One that is not loopback. Nothing is sent to find it.
fn address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    Some(socket.local_addr().ok()?.ip()).filter(|ip| !ip.is_loopback() && !ip.is_unspecified())
}

#[test]
fn a_tenant_sees_its_own_proxies_alone() {
    let Some(ip) = address() else {
        return skip("pages from afar: this machine has no address but loopback");
    };
    run(async move {
        let mesh = ServedMesh::with(&plan(8, 12), &Setup { everywhere: true, ..Setup::default() })?;
        let _swarm = mesh.swarm().await?;
        let afar = SocketAddr::new(ip, mesh.monitoring.port());
        let (tenant, operator) = (mesh.token("ns-0/default")?, mesh.token("istio-system/default")?);
        let ask = async |token: Option<&str>, page: &str| {
            let ask = HttpRequest::new(afar, "meltemi", page);
            http_client::send_one(&token.iter().fold(ask, |ask, it| ask.with("authorization", format!("Bearer {it}"))))
                .await
        };
        let proxies: Vec<Value> = serde_json::from_str(&mesh.page("/debug/proxies")?)?;
        let of = |own: bool| {
            proxies.iter().find(|it| (it["namespace"] == "ns-0") == own).and_then(|it| it["proxy"].as_str())
        };
        let (own, other) = (of(true).context("one of its own")?, of(false).context("one of another's")?);

        let list: Vec<String> = serde_json::from_str(&mesh.page("/debug/list")?)?;
        for page in &list {
            // These answer a tenant about its own namespace, or say what the request lacks.
            let to_tenant: &[u16] = match page.as_str() {
                "/debug/nacks" => &[200],
                "/debug/explain/object" | "/debug/object_acks" => &[400],
                "/debug/plan" => &[405],
                _ => &[403],
            };
            let page = format!("{page}?proxyID={other}");
            for (who, token, statuses) in [
                ("nobody", None, [401].as_slice()),
                ("a forger", Some("x.y.z"), &[401]),
                ("a tenant", Some(&*tenant), to_tenant),
            ] {
                let answer = ask(token, &page).await?;
                ensure!(statuses.contains(&answer.status.as_u16()), "{who} asks {page}: {}", answer.status);
                ensure!(!answer.body.contains("outbound|"), "{who} asks {page}: {}", answer.body);
            }
        }
        for page in ["config_dump", "edsz", "ndsz", "explain/proxy", "history", "history/config", "history/diff"] {
            let answer = ask(Some(&tenant), &format!("/debug/{page}?proxyID={own}")).await?;
            ensure!(answer.status == 200, "its own {page}: {} {}", answer.status, answer.body);
        }
        for page in ["syncz", "adsz", "registryz", &format!("config_dump?proxyID={other}")] {
            let answer = ask(Some(&operator), &format!("/debug/{page}")).await?;
            ensure!(answer.status == 200, "the control plane's namespace asks {page}: {}", answer.status);
        }
        Ok(())
    });
}
