//! Gateway (networking.istio.io): ports, hosts and server TLS of gateway proxies. Merging of Gateways is in `model`.

use serde::{Deserialize, Serialize};

use super::port::IstioPort;
use crate::labels::Labels;

#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Gateway {
    pub servers: Vec<ServerSpec>,
    /// Empty: every gateway proxy.
    pub selector: Labels,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServerSpec {
    /// `None`: not set, which validation rejects.
    pub port: Option<IstioPort>,
    pub bind: String,
    /// `[namespace/]host`.
    pub hosts: Vec<String>,
    /// `None`: plaintext.
    pub tls: Option<ServerTlsSettings>,
    pub default_endpoint: String,
    pub name: String,
}

/// Ciphers that Envoy supports and istiod accepts.
pub const CIPHERS: [&str; 15] = [
    "ECDHE-ECDSA-AES128-GCM-SHA256",
    "ECDHE-RSA-AES128-GCM-SHA256",
    "ECDHE-ECDSA-AES256-GCM-SHA384",
    "ECDHE-RSA-AES256-GCM-SHA384",
    "ECDHE-ECDSA-CHACHA20-POLY1305",
    "ECDHE-RSA-CHACHA20-POLY1305",
    "ECDHE-ECDSA-AES128-SHA",
    "ECDHE-RSA-AES128-SHA",
    "ECDHE-ECDSA-AES256-SHA",
    "ECDHE-RSA-AES256-SHA",
    "AES128-GCM-SHA256",
    "AES256-GCM-SHA384",
    "AES128-SHA",
    "AES256-SHA",
    "DES-CBC3-SHA",
];

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServerTlsSettings {
    pub https_redirect: bool,
    pub mode: ServerTlsMode,
    pub server_certificate: String,
    pub private_key: String,
    pub ca_certificates: String,
    pub ca_crl: String,
    pub credential_name: String,
    pub credential_names: Vec<String>,
    pub ca_cert_credential_name: String,
    pub tls_certificates: Vec<TlsCertificate>,
    pub subject_alt_names: Vec<String>,
    pub verify_certificate_spki: Vec<String>,
    pub verify_certificate_hash: Vec<String>,
    pub min_protocol_version: TlsProtocol,
    pub max_protocol_version: TlsProtocol,
    pub cipher_suites: Vec<String>,
    /// `None`: client certificates are verified.
    pub insecure_skip_verify: Option<bool>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ServerTlsMode {
    #[default]
    Passthrough,
    Simple,
    Mutual,
    AutoPassthrough,
    IstioMutual,
    OptionalMutual,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TlsCertificate {
    pub server_certificate: String,
    pub private_key: String,
    pub ca_certificates: String,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
pub enum TlsProtocol {
    #[default]
    #[serde(rename = "TLS_AUTO")]
    Auto,
    #[serde(rename = "TLSV1_0")]
    V1_0,
    #[serde(rename = "TLSV1_1")]
    V1_1,
    #[serde(rename = "TLSV1_2")]
    V1_2,
    #[serde(rename = "TLSV1_3")]
    V1_3,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::example::{check_enum, example, parse_error};

    #[test]
    fn a_gateway_with_every_field() {
        let gateway: Gateway = example(
            "
selector: {istio: ingressgateway}
servers:
- name: web
  port: {number: 443, name: https, protocol: HTTPS, targetPort: 8443}
  bind: 0.0.0.0
  hosts: [shop/*.example.com]
  defaultEndpoint: 127.0.0.1:80
  tls:
    httpsRedirect: true
    mode: OPTIONAL_MUTUAL
    serverCertificate: /cert
    privateKey: /key
    caCertificates: /ca
    caCrl: /crl
    credentialName: one
    credentialNames: [two, three]
    caCertCredentialName: roots
    tlsCertificates: [{serverCertificate: /c2, privateKey: /k2, caCertificates: /a2}]
    subjectAltNames: [a]
    verifyCertificateSpki: [b]
    verifyCertificateHash: [c]
    minProtocolVersion: TLSV1_2
    maxProtocolVersion: TLSV1_3
    cipherSuites: [d]
    insecureSkipVerify: true
",
        );
        let tls = ServerTlsSettings {
            https_redirect: true,
            mode: ServerTlsMode::OptionalMutual,
            server_certificate: "/cert".into(),
            private_key: "/key".into(),
            ca_certificates: "/ca".into(),
            ca_crl: "/crl".into(),
            credential_name: "one".into(),
            credential_names: vec!["two".into(), "three".into()],
            ca_cert_credential_name: "roots".into(),
            tls_certificates: vec![TlsCertificate {
                server_certificate: "/c2".into(),
                private_key: "/k2".into(),
                ca_certificates: "/a2".into(),
            }],
            subject_alt_names: vec!["a".into()],
            verify_certificate_spki: vec!["b".into()],
            verify_certificate_hash: vec!["c".into()],
            min_protocol_version: TlsProtocol::V1_2,
            max_protocol_version: TlsProtocol::V1_3,
            cipher_suites: vec!["d".into()],
            insecure_skip_verify: Some(true),
        };
        let port = IstioPort { number: 443, protocol: "HTTPS".into(), name: "https".into(), target_port: 8443 };
        let server = ServerSpec {
            port: Some(port),
            bind: "0.0.0.0".into(),
            hosts: vec!["shop/*.example.com".into()],
            tls: Some(tls),
            default_endpoint: "127.0.0.1:80".into(),
            name: "web".into(),
        };
        let selector = [("istio", "ingressgateway")].into_iter().collect();
        assert_eq!(gateway, Gateway { servers: vec![server], selector });
    }

    #[test]
    fn enums() {
        check_enum(&[
            ("PASSTHROUGH", ServerTlsMode::Passthrough),
            ("SIMPLE", ServerTlsMode::Simple),
            ("MUTUAL", ServerTlsMode::Mutual),
            ("AUTO_PASSTHROUGH", ServerTlsMode::AutoPassthrough),
            ("ISTIO_MUTUAL", ServerTlsMode::IstioMutual),
            ("OPTIONAL_MUTUAL", ServerTlsMode::OptionalMutual),
        ]);
        check_enum(&[
            ("TLS_AUTO", TlsProtocol::Auto),
            ("TLSV1_0", TlsProtocol::V1_0),
            ("TLSV1_1", TlsProtocol::V1_1),
            ("TLSV1_2", TlsProtocol::V1_2),
            ("TLSV1_3", TlsProtocol::V1_3),
        ]);
    }

    #[test]
    fn rejects_a_negative_port_with_its_position() {
        let rejected = parse_error::<Gateway>("servers: [{port: {number: -1}}]");
        assert!(rejected.starts_with("spec.servers[0].port.number: -1 is out of range"), "{rejected}");
    }
}
