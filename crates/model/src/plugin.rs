//! Plugins of a workload (WasmPlugin and TrafficExtension, Wasm or Lua) in the order of their filters, and the traffic that each
//! applies to.

use std::cmp::Reverse;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use config::diagnostic::ObjectId;
use config::kind::Kind;
use config::kinds::secret::Secret;
use config::kinds::traffic_extension::TrafficExtension;
use config::kinds::wasm_plugin::{PluginPhase, PluginType, TrafficSelector, WasmPlugin, WorkloadMode};
use config::labels::Labels;
use config::meta::{Meta, Object};
use config::store::{Name, Snapshot, Table};

use crate::identity::Assurance;
use crate::policy::attachment;

/// The plugins of a workload. Within a phase the highest priority comes first, then those of its own namespace, then the oldest.
#[derive(Debug, Clone, Default)]
pub struct Plugins(Vec<Plugin>);

#[derive(Debug, Clone)]
pub struct Plugin {
    object: PluginObject,
    /// The Secret of its namespace that it pulls its image with. `None` too for a proxy that is not authenticated.
    pull_secret: Option<Arc<Object<Secret>>>,
}

#[derive(Debug, Clone)]
enum PluginObject {
    Wasm(Arc<Object<WasmPlugin>>),
    Extension(Arc<Object<TrafficExtension>>),
}

/// The type of Secrets for registries, and the key of their content.
const PULL_SECRET: (&str, &str) = ("kubernetes.io/dockerconfigjson", ".dockerconfigjson");

/// Traffic that a plugin may apply to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PluginTraffic {
    pub side: PluginSide,
    pub port: u16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PluginSide {
    /// Outbound, or through a gateway.
    Client,
    /// Inbound.
    Server,
}

impl Plugin {
    fn new(object: PluginObject, objects: &Snapshot, assurance: Assurance) -> Self {
        let found = pull_secret_name(&object).and_then(|name| objects.secrets.get(&name));
        let found = found.filter(|secret| assurance != Assurance::Claimed && secret.spec.type_ == PULL_SECRET.0);
        Self { object, pull_secret: found.cloned() }
    }

    pub fn spec(&self) -> &WasmPlugin {
        self.object.spec()
    }

    /// `None`: it is Wasm.
    pub fn script(&self) -> Option<&str> {
        match &self.object {
            PluginObject::Wasm(_) => None,
            PluginObject::Extension(object) => object.spec.lua.as_deref(),
        }
    }

    /// The registry's credentials, as Docker writes them. `None`: it names no Secret. Empty: the proxy gets none.
    pub fn pull_secret(&self) -> Option<&str> {
        let content = self.pull_secret.as_ref().and_then(|secret| secret.spec.data.get(PULL_SECRET.1));
        let content = content.and_then(|content| std::str::from_utf8(content).ok());
        (!self.spec().image_pull_secret.is_empty()).then(|| content.unwrap_or_default())
    }

    pub fn full_name(&self) -> String {
        format!("{}.{}", self.meta().namespace, self.name())
    }

    /// As in istiod, which translates a WasmPlugin into a TrafficExtension.
    fn name(&self) -> String {
        let name = &self.meta().name;
        match self.object {
            PluginObject::Wasm(_) => format!("{name}~istio-translated-wasmplugin"),
            PluginObject::Extension(_) => name.to_string(),
        }
    }

    pub fn id(&self) -> ObjectId {
        let kind = match self.object {
            PluginObject::Wasm(_) => Kind::WasmPlugin,
            PluginObject::Extension(_) => Kind::TrafficExtension,
        };
        let meta = self.meta();
        ObjectId { kind, namespace: meta.namespace.clone(), name: meta.name.clone() }
    }

    fn meta(&self) -> &Meta {
        self.object.meta()
    }

    fn is_network(&self) -> bool {
        self.spec().plugin_type == PluginType::Network && self.script().is_none()
    }

    /// Without code it has no effect.
    fn has_code(&self) -> bool {
        self.script().map_or(!self.spec().url.is_empty(), |script| !script.is_empty())
    }

    fn is_same(&self, other: &Self) -> bool {
        let object = match (&self.object, &other.object) {
            (PluginObject::Wasm(one), PluginObject::Wasm(two)) => Arc::ptr_eq(one, two),
            (PluginObject::Extension(one), PluginObject::Extension(two)) => Arc::ptr_eq(one, two),
            _ => false,
        };
        object && self.pull_secret.as_ref().map(Arc::as_ptr) == other.pull_secret.as_ref().map(Arc::as_ptr)
    }
}

impl PluginObject {
    fn spec(&self) -> &WasmPlugin {
        match self {
            Self::Wasm(object) => &object.spec,
            Self::Extension(object) => &object.spec.plugin,
        }
    }

    fn meta(&self) -> &Meta {
        match self {
            Self::Wasm(object) => &object.meta,
            Self::Extension(object) => &object.meta,
        }
    }
}

/// Always of the plugin's own namespace, as in istiod, also where the name has another one.
fn pull_secret_name(object: &PluginObject) -> Option<Name> {
    let written = object.spec().image_pull_secret.as_str();
    let name = written.strip_prefix("kubernetes://").unwrap_or(written);
    let name = name.rsplit('/').next().filter(|name| !name.is_empty())?;
    Some(Name { namespace: object.meta().namespace.clone(), name: Arc::from(name) })
}

/// Some plugin pulls its image with this Secret.
pub(crate) fn is_pull_secret(objects: &Snapshot, secret: &Name) -> bool {
    let wasm = in_namespace(&objects.wasm_plugins, &secret.namespace).map(PluginObject::Wasm);
    let extensions = in_namespace(&objects.traffic_extensions, &secret.namespace).map(PluginObject::Extension);
    wasm.chain(extensions).any(|object| pull_secret_name(&object).as_ref() == Some(secret))
}

impl Plugins {
    pub(crate) fn new(objects: &Snapshot, root: &str, namespace: &str, labels: &Labels, assurance: Assurance) -> Self {
        if objects.wasm_plugins.is_empty() && objects.traffic_extensions.is_empty() {
            return Self::default();
        }
        let holds = |plugin: &Plugin| {
            plugin.has_code() && attachment::applies(plugin.spec(), &plugin.meta().namespace, namespace, labels)
        };
        let within = |wanted: &str| {
            let wasm = in_namespace(&objects.wasm_plugins, wanted).map(PluginObject::Wasm);
            let extensions = in_namespace(&objects.traffic_extensions, wanted).map(PluginObject::Extension);
            let all = wasm.chain(extensions).map(|object| Plugin::new(object, objects, assurance));
            let mut own: Vec<_> = all.filter(holds).collect();
            // Among equally old ones istiod's internal names decide: there `log2~...` sorts before `log~...`.
            own.sort_by_cached_key(|plugin| (plugin.meta().created, plugin.name()));
            own
        };
        let mut all = within(namespace);
        if namespace != root {
            all.extend(within(root));
        }
        // A stable sort, so that the order within a phase stays.
        all.sort_by_key(|plugin| Reverse(plugin.spec().priority.unwrap_or(i32::MIN)));
        Self(all)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Plugin> {
        self.0.iter()
    }

    /// The plugins of a phase for this traffic.
    pub fn of(&self, phase: PluginPhase, wanted: PluginType, passage: PluginTraffic) -> impl Iterator<Item = &Plugin> {
        self.0.iter().filter(move |plugin| {
            plugin.spec().phase == phase
                && plugin.is_network() == (wanted == PluginType::Network)
                && passage.is_wanted_by(&plugin.spec().matches)
        })
    }

    pub fn made_from(&self) -> impl Iterator<Item = ObjectId> {
        self.0.iter().map(Plugin::id)
    }

    /// Compared by pointer: unchanged objects keep their address.
    pub fn is_same(&self, other: &Self) -> bool {
        self.0.len() == other.0.len() && self.0.iter().zip(&other.0).all(|(one, two)| one.is_same(two))
    }

    /// What outbound listeners read of them.
    pub(crate) fn outbound_key(&self) -> PluginKey {
        let client = |one: &TrafficSelector| one.mode != WorkloadMode::Server;
        let read = |plugin: &&Plugin| {
            let matches = &plugin.spec().matches;
            matches.is_empty() || matches.iter().any(client)
        };
        PluginKey(self.0.iter().filter(read).cloned().collect())
    }

    /// What inbound listeners read of them.
    pub(crate) fn inbound_key(&self) -> PluginKey {
        PluginKey(self.0.clone())
    }
}

impl PluginTraffic {
    fn is_wanted_by(self, matches: &[TrafficSelector]) -> bool {
        let side = |mode: WorkloadMode| match mode {
            WorkloadMode::Undefined | WorkloadMode::ClientAndServer => true,
            WorkloadMode::Client => self.side == PluginSide::Client,
            WorkloadMode::Server => self.side == PluginSide::Server,
        };
        let port = |one: &TrafficSelector| {
            one.ports.is_empty() || one.ports.iter().any(|port| port.number != 0 && port.number == u32::from(self.port))
        };
        matches.is_empty() || matches.iter().any(|one| side(one.mode) && port(one))
    }
}

/// Plugins as part of a class key: equal if they make equal listeners, whatever their ECDS configuration. Only who may have pull secrets is in
/// a class of its own.
#[derive(Debug, Clone, Default)]
pub(crate) struct PluginKey(Vec<Plugin>);

/// What a listener holds of a plugin.
type PluginKeyFields<'a> = (ObjectId, Option<&'a str>, PluginPhase, [bool; 2], &'a [TrafficSelector]);

impl PluginKey {
    fn each(&self) -> impl Iterator<Item = PluginKeyFields<'_>> {
        self.0.iter().map(|plugin| {
            let spec = plugin.spec();
            let flags = [plugin.is_network(), plugin.pull_secret.is_some()];
            (plugin.id(), plugin.script(), spec.phase, flags, spec.matches.as_slice())
        })
    }
}

impl PartialEq for PluginKey {
    fn eq(&self, other: &Self) -> bool {
        self.each().eq(other.each())
    }
}

impl Eq for PluginKey {}

impl Hash for PluginKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.len().hash(state);
        for (id, script, phase, flags, matches) in self.each() {
            (id, script, phase as u8, flags, matches.len()).hash(state);
            for TrafficSelector { mode, ports } in matches {
                (*mode as u8, ports.len()).hash(state);
                ports.iter().for_each(|port| port.number.hash(state));
            }
        }
    }
}

fn in_namespace<S>(objects: &Table<S>, namespace: &str) -> impl Iterator<Item = Arc<Object<S>>> {
    let namespace: Arc<str> = Arc::from(namespace);
    let first = Name { namespace: namespace.clone(), name: Arc::from("") };
    objects.range(first..).take_while(move |(name, _)| name.namespace == namespace).map(|(_, object)| object.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::Environment;
    use crate::mesh::Mesh;
    use config::object::parse_documents;
    use config::store::{Store, StoreOptions, Update};

    /// Names of the plugins of `app: cart` in shop, in order; each object `kind namespace name spec`.
    fn plugins(objects: &[(&str, &str, &str, &str)]) -> Plugins {
        plugins_with("", objects, Assurance::Authenticated)
    }

    /// `secret`: a document before the plugins.
    fn plugins_with(secret: &str, objects: &[(&str, &str, &str, &str)], assurance: Assurance) -> Plugins {
        let text = objects.iter().map(|(kind, namespace, name, spec)| {
            format!("{{apiVersion: extensions.istio.io/v1alpha1, kind: {kind}, metadata: {{name: {name}, namespace: {namespace}}}, spec: {{{spec}}}}}\n---\n")
        });
        let parsed = parse_documents("p.yaml", &format!("{secret}{}", text.collect::<String>()));
        assert!(parsed.rejected.is_empty(), "{:?}", parsed.diagnostics);
        let mut store = Store::new(StoreOptions { pod_namespace: "istio-system".into(), mesh_config: None });
        let snapshot = store.apply(parsed.objects.into_iter().map(Update::Put).collect());
        let mesh = Mesh::new(&snapshot, &Arc::new(Environment::default()));
        mesh.plugins("shop", &Labels::from_iter([("app", "cart")]), assurance)
    }

    #[test]
    fn priority_then_the_own_namespace_then_age() {
        let plugins = plugins(&[
            ("WasmPlugin", "istio-system", "root", "url: a"),
            ("WasmPlugin", "shop", "low", "url: a, priority: -1"),
            ("TrafficExtension", "shop", "script", "lua: {inlineCode: x}"),
            ("TrafficExtension", "shop", "high", "priority: 7, wasm: {url: a}"),
            ("WasmPlugin", "shop", "plain", "url: a"),
            ("WasmPlugin", "shop", "others", "url: a, selector: {matchLabels: {app: web}}"),
            ("WasmPlugin", "bank", "elsewhere", "url: a"),
            ("TrafficExtension", "shop", "nothing", "priority: 9"),
        ]);
        let names: Vec<_> = plugins.iter().map(Plugin::full_name).collect();
        let translated = |name: &str| format!("{name}~istio-translated-wasmplugin");
        assert_eq!(
            names,
            [
                "shop.high".into(),
                translated("shop.low"),
                translated("shop.plain"),
                "shop.script".into(),
                translated("istio-system.root")
            ]
        );
    }

    #[test]
    fn only_authenticated_proxies_get_the_pull_secret_of_the_plugins_namespace() {
        let secret = |namespace: &str, kind: &str| {
            format!(
                "{{apiVersion: v1, kind: Secret, metadata: {{name: pull, namespace: {namespace}}}, type: kubernetes.io/{kind}, stringData: {{.dockerconfigjson: hush}}}}\n---\n"
            )
        };
        let docker = "dockerconfigjson";
        let found = |secret: &str, written: &str, assurance| {
            let made = plugins_with(secret, &[("WasmPlugin", "shop", "a", &format!("url: a, {written}"))], assurance);
            made.iter().next().and_then(|plugin| plugin.pull_secret().map(str::to_owned))
        };
        let of = |written: &str| found(&secret("shop", docker), written, Assurance::Authenticated);
        assert_eq!(of("imagePullSecret: pull").as_deref(), Some("hush"));
        assert_eq!(
            of("imagePullSecret: 'kubernetes://bank/pull'").as_deref(),
            Some("hush"),
            "never of another namespace"
        );
        assert_eq!(of("imagePullSecret: other").as_deref(), Some(""));
        assert_eq!(of("priority: 1"), None);
        let named = "imagePullSecret: pull";
        assert_eq!(found(&secret("shop", docker), named, Assurance::Claimed).as_deref(), Some(""));
        assert_eq!(found(&secret("bank", docker), named, Assurance::Authenticated).as_deref(), Some(""));
        assert_eq!(found(&secret("shop", "basic-auth"), named, Assurance::Authenticated).as_deref(), Some(""));
        let key = |assurance| {
            plugins_with(
                &secret("shop", docker),
                &[("WasmPlugin", "shop", "a", "url: a, imagePullSecret: pull")],
                assurance,
            )
            .inbound_key()
        };
        assert!(key(Assurance::Claimed) != key(Assurance::Authenticated), "they share no class");
    }

    #[test]
    fn a_plugin_is_for_a_side_and_ports() {
        let plugins = plugins(&[(
            "WasmPlugin",
            "shop",
            "a",
            "url: a, match: [{mode: SERVER, ports: [{number: 80}]}, {mode: CLIENT}]",
        )]);
        let wanted = |side, port| {
            plugins.of(PluginPhase::UnspecifiedPhase, PluginType::Http, PluginTraffic { side, port }).next().is_some()
        };
        assert!(wanted(PluginSide::Server, 80) && !wanted(PluginSide::Server, 81) && wanted(PluginSide::Client, 81));
    }

    #[test]
    fn another_configuration_leaves_the_listeners_alone() {
        let with = |spec: &str| plugins(&[("WasmPlugin", "shop", "a", &format!("url: a, {spec}"))]);
        let (one, two) = (with("pluginConfig: {a: 1}"), with("pluginConfig: {a: 2}"));
        assert!(one.inbound_key() == two.inbound_key() && !one.is_same(&two));
        assert!(one.inbound_key() != with("phase: AUTHN").inbound_key());
        let script =
            |text: &str| plugins(&[("TrafficExtension", "shop", "a", &format!("lua: {{inlineCode: {text}}}"))]);
        assert!(script("x").inbound_key() != script("y").inbound_key(), "a script stands in the listener");
    }

    #[test]
    fn plugins_that_differ_have_different_hashes() {
        let state = std::hash::RandomState::new();
        let hash = |spec: &str| {
            let plugins = plugins(&[("WasmPlugin", "shop", "a", &format!("url: a, {spec}"))]);
            std::hash::BuildHasher::hash_one(&state, plugins.inbound_key())
        };
        let specs = [
            "pluginConfig: {a: 1}",
            "phase: AUTHN",
            "type: NETWORK",
            "match: [{mode: SERVER}]",
            "match: [{mode: CLIENT}]",
            "match: [{mode: CLIENT, ports: [{number: 80}]}]",
            "match: [{mode: CLIENT, ports: [{number: 81}]}]",
        ];
        let hashes: std::collections::BTreeSet<_> = specs.iter().map(|spec| hash(spec)).collect();
        assert_eq!(hashes.len(), specs.len());
        assert_eq!(hash("pluginConfig: {a: 1}"), hash("pluginConfig: {a: 2}"));
    }
}
