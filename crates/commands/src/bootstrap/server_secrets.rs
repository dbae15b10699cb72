//! A bootstrap with SDS by the server: the cluster `sds-grpc` connects to the server over TLS and adds the token of the workload, since the
//! generated configuration only names the cluster.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};

/// Envoy's secret with the token.
const TOKEN: &str = "token";
/// Envoy's secret with the roots that verify the server.
const ROOTS: &str = "server-roots";
const OPTIONS: &str = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";

/// Files, as Envoy will find them.
pub(super) struct ServerSecrets {
    pub(super) root: PathBuf,
    pub(super) token: PathBuf,
    /// The file through which Envoy watches both. `None`: they are read once.
    pub(super) followed_by: Option<PathBuf>,
}

impl ServerSecrets {
    pub(super) fn write(&self) -> Result<()> {
        // Envoy reads one secret per file.
        for (name, mut secret) in [(TOKEN, self.secret()), (ROOTS, self.roots())] {
            let Some(file) = self.file(name) else { return Ok(()) };
            secret["@type"] = json!("type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret");
            std::fs::write(&file, format!("{:#}\n", json!({"resources": [secret]})))
                .with_context(|| format!("--token-secret: {}", file.display()))?;
        }
        Ok(())
    }

    /// The file of a secret: that of --token-secret, and a second one for the roots.
    fn file(&self, secret: &str) -> Option<PathBuf> {
        let file = self.followed_by.clone()?;
        match secret {
            ROOTS => Some(file.with_extension("roots.json")),
            _ => Some(file),
        }
    }

    /// `name`: the name that the server certificate must have.
    pub(super) fn add_to(&self, document: &mut Value, name: &str) {
        let mut tls = super::mutual_tls(name);
        let context = &mut tls["typed_config"]["common_tls_context"];
        if let Some(context) = context.as_object_mut() {
            context.remove("tls_certificate_sds_secret_configs");
        }
        match self.followed(ROOTS, &self.root) {
            Some(roots) => context["combined_validation_context"]["validation_context_sds_secret_config"] = roots,
            None => {
                let mut checked = context["combined_validation_context"]["default_validation_context"].take();
                checked["trusted_ca"] = json!({"filename": self.root});
                *context = json!({"alpn_protocols": ["h2"], "validation_context": checked});
            }
        }
        let resources = &mut document["static_resources"];
        let clusters = resources["clusters"].as_array_mut().into_iter().flatten();
        for cluster in clusters.filter(|cluster| cluster["name"] == "sds-grpc") {
            cluster["transport_socket"] = tls.clone();
            cluster["typed_extension_protocol_options"][OPTIONS]["http_filters"] = self.filters();
        }
        if self.followed_by.is_none() {
            resources["secrets"] = json!([self.secret()]);
        }
    }

    /// A secret that Envoy reads from our file, and reloads when a file is moved into the folder of what it names.
    fn followed(&self, name: &str, named: &Path) -> Option<Value> {
        let source = json!({"path": self.file(name)?, "watched_directory": {"path": folder(named)}});
        Some(json!({"name": name, "sds_config": {"path_config_source": source}}))
    }

    fn roots(&self) -> Value {
        json!({
            "name": ROOTS,
            "validation_context": {
                "trusted_ca": {"filename": self.root}, "watched_directory": {"path": folder(&self.root)},
            },
        })
    }

    fn secret(&self) -> Value {
        json!({
            "name": TOKEN,
            "generic_secret": {"secret": {"filename": self.token, "watched_directory": {"path": folder(&self.token)}}},
        })
    }

    fn filters(&self) -> Value {
        let secret = self.followed(TOKEN, &self.token).unwrap_or_else(|| json!({"name": TOKEN}));
        json!([
            {
                "name": "envoy.filters.http.credential_injector",
                "typed_config": {
                    "@type": "type.googleapis.com/envoy.extensions.filters.http.credential_injector.v3.CredentialInjector",
                    "overwrite": true,
                    "credential": {
                        "name": "envoy.http.injected_credentials.generic",
                        "typed_config": {
                            "@type": "type.googleapis.com/envoy.extensions.http.injected_credentials.generic.v3.Generic",
                            "header_value_prefix": "Bearer ",
                            "credential": secret,
                        },
                    },
                },
            },
            {
                "name": "envoy.filters.http.upstream_codec",
                "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.upstream_codec.v3.UpstreamCodec"},
            },
        ])
    }
}

fn folder(file: &Path) -> &Path {
    file.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::super::tests::bootstrap;
    use super::*;

    const FLAGS: [&str; 6] = [
        "--proxy=a.b",
        "--server=127.0.0.1:15012",
        "--server-name=istiod.istio-system.svc",
        "--ip=10.0.0.1",
        "--sds=server",
        "--root=/root.pem",
    ];

    #[test]
    fn the_token_goes_to_the_server_over_tls_only_and_is_not_in_the_document() {
        let folder = tempfile::tempdir().unwrap();
        let token = folder.path().join("token");
        std::fs::write(&token, "abc.def.ghi").unwrap();
        let flag = format!("--token={}", token.display());
        let document = bootstrap(&[&FLAGS[..], &[&flag]].concat()).unwrap();
        let sds = &document["static_resources"]["clusters"][1];
        let tls = &sds["transport_socket"]["typed_config"];
        assert_eq!(tls["sni"], "istiod.istio-system.svc");
        assert_eq!(tls["common_tls_context"]["validation_context"]["trusted_ca"]["filename"], "/root.pem");
        assert!(tls["common_tls_context"]["tls_certificate_sds_secret_configs"].is_null());
        let filters = &sds["typed_extension_protocol_options"][OPTIONS]["http_filters"];
        assert_eq!(filters[0]["typed_config"]["credential"]["typed_config"]["header_value_prefix"], "Bearer ");
        let ads = &document["static_resources"]["clusters"][0]["transport_socket"]["typed_config"];
        assert!(ads["common_tls_context"]["tls_certificate_sds_secret_configs"].is_array());
        assert!(!document.to_string().contains("abc.def.ghi"));
    }

    #[test]
    fn a_token_that_is_renewed_is_followed_through_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("secret.json");
        let more = [format!("--token={}/token", folder.path().display()), format!("--token-secret={}", file.display())];
        let document = bootstrap(&[&FLAGS[..], &[&more[0], &more[1]]].concat()).unwrap();
        assert!(document["static_resources"]["secrets"].is_null());
        let written: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
        let secret = &written["resources"][0]["generic_secret"]["secret"];
        assert_eq!(secret["watched_directory"]["path"], folder.path().display().to_string());
        let beside = folder.path().join("secret.roots.json");
        let written: Value = serde_json::from_str(&std::fs::read_to_string(&beside).unwrap()).unwrap();
        assert_eq!(written["resources"][0]["validation_context"]["trusted_ca"]["filename"], "/root.pem");
        let sds =
            &document["static_resources"]["clusters"][1]["transport_socket"]["typed_config"]["common_tls_context"];
        let roots = &sds["combined_validation_context"]["validation_context_sds_secret_config"];
        assert_eq!(roots["sds_config"]["path_config_source"]["path"], beside.display().to_string());
    }
}
