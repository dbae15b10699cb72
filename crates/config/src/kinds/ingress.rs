//! Ingress (networking.k8s.io): hosts, paths and backend Services. `model` converts it.

use serde::{Deserialize, Deserializer, de};

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "Raw")]
pub struct Ingress {
    /// `None`: an annotation or the mesh decides.
    pub class: Option<String>,
    pub default_backend: Option<Backend>,
    pub tls: Vec<Tls>,
    pub rules: Vec<IngressRule>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Tls {
    pub hosts: Vec<String>,
    pub secret_name: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IngressRule {
    /// Empty: any.
    pub host: String,
    /// `None`: the rule has no paths.
    pub http: Option<Paths>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Paths {
    pub paths: Vec<Path>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Path {
    pub path: String,
    pub path_type: PathType,
    pub backend: Backend,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub enum PathType {
    Exact,
    Prefix,
    #[default]
    ImplementationSpecific,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Backend {
    /// `None`: a resource of another kind, which is not supported.
    pub service: Option<ServiceBackend>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceBackend {
    pub name: String,
    #[serde(deserialize_with = "service_port")]
    pub port: ServicePort,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServicePort {
    Number(u16),
    Name(String),
}

impl Default for ServicePort {
    fn default() -> Self {
        Self::Name(String::new())
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Raw {
    spec: Spec,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    ingress_class_name: Option<String>,
    default_backend: Option<Backend>,
    tls: Vec<Tls>,
    rules: Vec<IngressRule>,
}

impl From<Raw> for Ingress {
    fn from(raw: Raw) -> Ingress {
        let Spec { ingress_class_name: class, default_backend, tls, rules } = raw.spec;
        Ingress { class, default_backend, tls, rules }
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawPort {
    name: String,
    number: i32,
}

fn service_port<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ServicePort, D::Error> {
    let raw = RawPort::deserialize(deserializer)?;
    match raw.number {
        0 => Ok(ServicePort::Name(raw.name)),
        number => u16::try_from(number)
            .map(ServicePort::Number)
            .map_err(|_| de::Error::custom(format!("port {number} is out of range; a port is 1 to 65535"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::kubernetes_example::{kubernetes, kubernetes_parse_error};

    #[test]
    fn an_ingress_with_every_field() {
        let ingress: Ingress = kubernetes(
            "
spec:
  ingressClassName: istio
  defaultBackend: {service: {name: rest, port: {name: http}}}
  tls: [{hosts: [a.example.com], secretName: a-cert}]
  rules:
  - host: a.example.com
    http:
      paths:
      - {path: /a, pathType: Exact, backend: {service: {name: cart, port: {number: 80}}}}
      - {path: /b, pathType: Prefix, backend: {resource: {kind: Bucket, name: b}}}
status: {loadBalancer: {}}
",
        );
        let service = |name: &str, port| Backend { service: Some(ServiceBackend { name: name.into(), port }) };
        let exact =
            Path { path: "/a".into(), path_type: PathType::Exact, backend: service("cart", ServicePort::Number(80)) };
        let prefix = Path { path: "/b".into(), path_type: PathType::Prefix, backend: Backend { service: None } };
        let want = Ingress {
            class: Some("istio".into()),
            default_backend: Some(service("rest", ServicePort::Name("http".into()))),
            tls: vec![Tls { hosts: vec!["a.example.com".into()], secret_name: "a-cert".into() }],
            rules: vec![IngressRule { host: "a.example.com".into(), http: Some(Paths { paths: vec![exact, prefix] }) }],
        };
        assert_eq!(ingress, want);
    }

    #[test]
    fn rejects_a_port_out_of_range_with_its_position() {
        let rejected =
            kubernetes_parse_error::<Ingress>("spec: {defaultBackend: {service: {name: a, port: {number: 70000}}}}");
        assert_eq!(rejected, "spec.defaultBackend.service.port: port 70000 is out of range; a port is 1 to 65535");
    }
}
