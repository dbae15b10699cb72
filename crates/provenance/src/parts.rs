//! The parts of a resource that an explanation speaks of: virtual hosts and routes, filter chains and filters, the fields of a cluster.

use serde_json::Value;

/// Fields whose content is divided further, wherever they are.
const DIVIDED: [&str; 8] = [
    "virtualHosts",
    "filterChains",
    "defaultFilterChain",
    "filters",
    "typedConfig",
    "routeConfig",
    "typedExtensionProtocolOptions",
    "commonLbConfig",
];

/// Lists of which each element is one part.
const LISTS: [&str; 5] = ["routes", "httpFilters", "listenerFilters", "endpoints", "transportSocketMatches"];

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Part {
    /// `virtualHosts[cart:80].routes[0]`.
    pub(crate) label: String,
    /// With positions instead of names, as validation errors have it: `virtualHosts[0].routes[0]`.
    path: String,
    /// The label, or of an element without a name of its own that of its list: it may move.
    place: String,
    value: Value,
}

/// In the order of the resource.
pub(crate) fn parts(resource: &Value) -> Vec<Part> {
    let mut found = Vec::new();
    fields(&Place::default(), resource, &mut found);
    found
}

#[derive(Default, Clone)]
struct Place {
    label: String,
    path: String,
}

impl Place {
    fn field(&self, key: &str) -> Place {
        let join = |prefix: &str| if prefix.is_empty() { key.to_owned() } else { format!("{prefix}.{key}") };
        Place { label: join(&self.label), path: join(&self.path) }
    }

    fn element(&self, index: usize, name: Option<&str>) -> Place {
        let label = name.map_or_else(|| format!("{}[{index}]", self.label), |name| format!("{}[{name}]", self.label));
        Place { label, path: format!("{}[{index}]", self.path) }
    }
}

/// Those that are not, with the same content, among `others`; by their position.
pub(crate) fn missing(parts: &[Part], others: &[Part]) -> Vec<usize> {
    let same = |part: &Part| others.iter().any(|other| other.place == part.place && other.value == part.value);
    parts.iter().enumerate().filter(|(_, part)| !same(part)).map(|(index, _)| index).collect()
}

fn fields(around: &Place, value: &Value, found: &mut Vec<Part>) {
    let Some(fields) = value.as_object() else { return add(around, around.label.clone(), value, found) };
    for (key, value) in fields.iter().filter(|(key, _)| *key != "@type") {
        let (here, divided) = (around.field(key), DIVIDED.contains(&key.as_str()));
        match value {
            Value::Array(items) if divided || LISTS.contains(&key.as_str()) => elements(&here, items, divided, found),
            Value::Object(_) if divided => self::fields(&here, value, found),
            _ => add(&here, here.label.clone(), value, found),
        }
    }
}

/// `divided`: each element has parts of its own.
fn elements(list: &Place, items: &[Value], divided: bool, found: &mut Vec<Part>) {
    for (index, item) in items.iter().enumerate() {
        let name = item["name"].as_str().filter(|name| !name.is_empty());
        let unique = name.filter(|name| items.iter().filter(|other| other["name"] == **name).count() == 1);
        let here = list.element(index, unique);
        match (divided, unique) {
            (true, _) => fields(&here, item, found),
            (false, Some(_)) => add(&here, here.label.clone(), item, found),
            (false, None) => add(&here, list.label.clone(), item, found),
        }
    }
}

fn add(at: &Place, place: String, value: &Value, found: &mut Vec<Part>) {
    found.push(Part { label: at.label.clone(), path: at.path.clone(), place, value: value.clone() });
}

impl Part {
    /// The field at this path is in the part, or the part is in that field.
    pub(crate) fn meets(&self, path: &str) -> bool {
        let within = |inner: &str, outer: &str| {
            inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        within(path, &self.path) || within(&self.path, path)
    }

    /// Some text or key in it is this word.
    pub(crate) fn mentions(&self, word: &str) -> bool {
        fn within(value: &Value, word: &str) -> bool {
            match value {
                Value::String(text) => text == word,
                Value::Array(items) => items.iter().any(|item| within(item, word)),
                Value::Object(fields) => fields.iter().any(|(key, value)| key == word || within(value, word)),
                _ => false,
            }
        }
        within(&self.value, word)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn labels(resource: &Value) -> Vec<String> {
        parts(resource).into_iter().map(|part| part.label).collect()
    }

    #[test]
    fn routes_are_parts_of_their_virtual_host() {
        let routes = json!({"@type": "t", "name": "80", "virtualHosts": [
            {"name": "cart:80", "domains": ["cart"], "routes": [{"name": "a"}, {"name": "a"}, {"name": "b"}]},
        ]});
        assert_eq!(
            labels(&routes),
            [
                "name",
                "virtualHosts[cart:80].domains",
                "virtualHosts[cart:80].name",
                "virtualHosts[cart:80].routes[0]",
                "virtualHosts[cart:80].routes[1]",
                "virtualHosts[cart:80].routes[b]",
            ]
        );
    }

    #[test]
    fn http_filters_are_parts_of_their_chain() {
        let listener = json!({"filterChains": [{"name": "c", "filters": [{"name": "hcm", "typedConfig":
            {"@type": "t", "statPrefix": "s", "httpFilters": [{"name": "router"}]}}]}]});
        assert_eq!(
            labels(&listener),
            [
                "filterChains[c].filters[hcm].name",
                "filterChains[c].filters[hcm].typedConfig.httpFilters[router]",
                "filterChains[c].filters[hcm].typedConfig.statPrefix",
                "filterChains[c].name",
            ]
        );
    }

    #[test]
    fn a_route_that_moved_is_the_same_part() {
        let before = parts(&json!({"virtualHosts": [{"name": "v", "routes": [{"x": 1}, {"x": 2}]}]}));
        let after = parts(&json!({"virtualHosts": [{"name": "v", "routes": [{"x": 2}]}]}));
        assert_eq!(missing(&before, &after), [1], "name, then the first route");
        assert!(missing(&after, &before).is_empty());
    }
}
