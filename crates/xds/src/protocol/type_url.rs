//! The resource types that are served: their URLs, short names and place in the push order.

/// In push order: a type is sent after the types that it refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TypeUrl {
    Cluster,
    Endpoints,
    Listener,
    Route,
    Secret,
    Address,
    Workload,
    Authorization,
    Extension,
    NameTable,
    ProxyConfig,
}

impl TypeUrl {
    pub const ALL: [TypeUrl; 11] = [
        TypeUrl::Cluster,
        TypeUrl::Endpoints,
        TypeUrl::Listener,
        TypeUrl::Route,
        TypeUrl::Secret,
        TypeUrl::Address,
        TypeUrl::Workload,
        TypeUrl::Authorization,
        TypeUrl::Extension,
        TypeUrl::NameTable,
        TypeUrl::ProxyConfig,
    ];

    pub fn from_url(url: &str) -> Option<TypeUrl> {
        TypeUrl::ALL.into_iter().find(|kind| kind.url() == url)
    }

    pub fn url(self) -> &'static str {
        match self {
            TypeUrl::Cluster => "type.googleapis.com/envoy.config.cluster.v3.Cluster",
            TypeUrl::Endpoints => "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
            TypeUrl::Listener => "type.googleapis.com/envoy.config.listener.v3.Listener",
            TypeUrl::Route => "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
            TypeUrl::Secret => "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret",
            TypeUrl::Address => "type.googleapis.com/istio.workload.Address",
            TypeUrl::Workload => "type.googleapis.com/istio.workload.Workload",
            TypeUrl::Authorization => "type.googleapis.com/istio.security.Authorization",
            TypeUrl::Extension => "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig",
            TypeUrl::NameTable => "type.googleapis.com/istio.networking.nds.v1.NameTable",
            TypeUrl::ProxyConfig => "type.googleapis.com/istio.mesh.v1alpha1.ProxyConfig",
        }
    }

    /// As in istiod's log lines and debug pages.
    pub fn short(self) -> &'static str {
        match self {
            TypeUrl::Cluster => "CDS",
            TypeUrl::Endpoints => "EDS",
            TypeUrl::Listener => "LDS",
            TypeUrl::Route => "RDS",
            TypeUrl::Secret => "SDS",
            TypeUrl::Address => "WDS",
            TypeUrl::Workload => "WORKLOAD",
            TypeUrl::Authorization => "WADS",
            TypeUrl::Extension => "ECDS",
            TypeUrl::NameTable => "NDS",
            TypeUrl::ProxyConfig => "PCDS",
        }
    }

    /// The value of the `type` label in metrics.
    pub fn label(self) -> &'static str {
        match self {
            TypeUrl::Cluster => "cds",
            TypeUrl::Endpoints => "eds",
            TypeUrl::Listener => "lds",
            TypeUrl::Route => "rds",
            TypeUrl::Secret => "sds",
            TypeUrl::Address => "wds",
            TypeUrl::Workload => "workload",
            TypeUrl::Authorization => "wads",
            TypeUrl::Extension => "ecds",
            TypeUrl::NameTable => "nds",
            TypeUrl::ProxyConfig => "pcds",
        }
    }

    /// A first request without names means everything. The other types have to be subscribed to by name.
    pub fn wildcard(self) -> bool {
        !matches!(self, TypeUrl::Endpoints | TypeUrl::Route | TypeUrl::Secret | TypeUrl::Extension)
    }
}

/// A set of types.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kinds(u16);

impl Kinds {
    pub const NONE: Kinds = Kinds(0);
    pub const ALL: Kinds = Kinds((1 << TypeUrl::ALL.len()) - 1);

    pub const fn of(kinds: &[TypeUrl]) -> Kinds {
        let (mut all, mut at) = (0, 0);
        // A constant can have no `for`.
        while at < kinds.len() {
            all |= 1 << kinds[at] as u16;
            at += 1;
        }
        Kinds(all)
    }

    pub fn is_empty(self) -> bool {
        self == Kinds::NONE
    }

    pub fn contains(self, kind: TypeUrl) -> bool {
        self.0 & 1 << kind as u16 != 0
    }

    pub fn insert(&mut self, kind: TypeUrl) {
        self.0 |= 1 << kind as u16;
    }

    pub(crate) fn set(&mut self, kind: TypeUrl, member: bool) {
        self.0 = self.0 & !(1 << kind as u16) | u16::from(member) << kind as u16;
    }

    pub fn union(self, others: Kinds) -> Kinds {
        Kinds(self.0 | others.0)
    }

    pub(crate) fn difference(self, others: Kinds) -> Kinds {
        Kinds(self.0 & !others.0)
    }

    /// In push order.
    pub fn iter(self) -> impl Iterator<Item = TypeUrl> {
        TypeUrl::ALL.into_iter().filter(move |kind| self.contains(*kind))
    }
}

impl FromIterator<TypeUrl> for Kinds {
    fn from_iter<I: IntoIterator<Item = TypeUrl>>(kinds: I) -> Kinds {
        kinds.into_iter().fold(Kinds::NONE, |mut all, kind| {
            all.insert(kind);
            all
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_behave_as_a_set() {
        let mut some: Kinds = [TypeUrl::ProxyConfig, TypeUrl::Endpoints].into_iter().collect();
        assert_eq!(some, Kinds::of(&[TypeUrl::Endpoints, TypeUrl::ProxyConfig]));
        assert_eq!(some.iter().collect::<Vec<_>>(), [TypeUrl::Endpoints, TypeUrl::ProxyConfig]);
        some.set(TypeUrl::Cluster, true);
        some.set(TypeUrl::Endpoints, false);
        assert_eq!(some.iter().collect::<Vec<_>>(), [TypeUrl::Cluster, TypeUrl::ProxyConfig]);
        assert_eq!(some.difference(Kinds::ALL), Kinds::NONE);
        assert_eq!(Kinds::ALL.iter().count(), TypeUrl::ALL.len());
        assert_eq!(some.union(Kinds::ALL), Kinds::ALL);
    }

    #[test]
    fn from_url_finds_every_type() {
        for kind in TypeUrl::ALL {
            assert_eq!(TypeUrl::from_url(kind.url()), Some(kind));
        }
        assert_eq!(TypeUrl::from_url("type.googleapis.com/envoy.config.cluster.v3.clusteR"), None);
    }

    #[test]
    fn all_is_in_push_order() {
        assert!(TypeUrl::ALL.is_sorted());
        let first: Vec<_> = TypeUrl::ALL.iter().take(8).map(|kind| kind.short()).collect();
        assert_eq!(first, ["CDS", "EDS", "LDS", "RDS", "SDS", "WDS", "WORKLOAD", "WADS"]);
    }
}
