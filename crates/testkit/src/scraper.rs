//! A real Prometheus that scrapes a server of a test, with the alert rules of the repository.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::cluster::ADMIN;
use crate::http_client::{self, HttpRequest};
use crate::process::Process;
use crate::wait::eventually;
use crate::{environment, port};

pub struct Scraper {
    pub at: SocketAddr,
    _process: Process,
}

/// What is scraped.
#[derive(Debug, Clone, Copy)]
pub struct Scraped {
    /// The port of the pages.
    pub monitoring: SocketAddr,
    /// `None`: objects are read from a folder.
    pub api_server: Option<SocketAddr>,
}

impl Scraper {
    /// `folder`: for its configuration, data and log. It may have data already.
    pub fn start(prometheus: &Path, folder: &Path, scraped: Scraped) -> Result<Scraper> {
        let at = port::reserve_address()?;
        let config = folder.join("prometheus.yml");
        fs::write(&config, configuration(scraped))?;
        let log = fs::File::create(folder.join("prometheus.log"))?;
        let mut command = Command::new(prometheus);
        command
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", folder.join("tsdb").display()))
            .arg(format!("--web.listen-address={at}"))
            .stdout(log.try_clone()?)
            .stderr(log);
        Ok(Scraper { at, _process: Process::spawn(&mut command)? })
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.at)
    }

    /// Waits for at least one number.
    pub async fn has_data(&self, expression: &str) -> Result<()> {
        eventually(&format!("data of {expression}"), async || {
            let answer = self.ask(expression).await.unwrap_or_default();
            Ok(answer["data"]["result"].as_array().is_some_and(|results| !results.is_empty()))
        })
        .await
    }

    async fn ask(&self, expression: &str) -> Result<Value> {
        let encoded: String = expression.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let ask = HttpRequest::new(self.at, "prometheus", &format!("/api/v1/query?query={encoded}"));
        let answer = http_client::send_one(&ask).await?;
        let answer: Value = serde_json::from_str(&answer.body).with_context(|| answer.body.clone())?;
        ensure!(answer["status"] == "success", "{expression}: {answer}");
        Ok(answer)
    }
}

fn configuration(scraped: Scraped) -> String {
    let rules = environment::repository().join("deploy/observability/alerts.yaml");
    let Scraped { monitoring, api_server } = scraped;
    let mut jobs = vec![serde_json::json!({
        "job_name": "meltemi",
        "static_configs": [{ "targets": [monitoring], "labels": { "app": "istiod", "pod": "istiod-0" } }],
    })];
    if let Some(address) = api_server {
        // Its page is long.
        jobs.push(serde_json::json!({
            "job_name": "apiserver", "scheme": "https", "scrape_interval": "1s", "scrape_timeout": "1s",
            "authorization": { "credentials": ADMIN }, "tls_config": { "insecure_skip_verify": true },
            "static_configs": [{ "targets": [address] }],
        }));
    }
    // JSON is YAML.
    let config = serde_json::json!({
        "global": { "scrape_interval": "500ms", "evaluation_interval": "500ms", "scrape_timeout": "500ms" },
        "rule_files": [rules], "scrape_configs": jobs,
    });
    config.to_string()
}
