//! Objects as they were before they were edited, for as long as proxies may reject what became of the edit: a resource that they reject is made
//! with the object at fault as it was, and with everything else as it is. Only of kinds that can be at fault.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use config::diagnostic::ObjectId;
use config::object::AnyObject;
use config::store::{Edit, Snapshot};
use provenance::CULPRIT_KINDS;

/// Proxies answer within moments, or reconnect and are sent the same again.
const KEEP: Duration = Duration::from_secs(60);
/// Objects whose earlier version is kept at a time. Of more, a resource is made without the one at fault.
const MOST: usize = 1_000;

pub(super) struct EarlierObjects {
    current: Arc<Snapshot>,
    versions: HashMap<ObjectId, Earlier>,
}

struct Earlier {
    /// `None`: there was no such object.
    object: Option<AnyObject>,
    edited: Instant,
}

impl EarlierObjects {
    pub(super) fn new(current: Arc<Snapshot>) -> Self {
        Self { current, versions: HashMap::new() }
    }

    /// `holding`: something is held. Then a version stays however long ago it was replaced, and also through further edits, which may be as faulty
    /// as the first.
    pub(super) fn follow(&mut self, objects: &Arc<Snapshot>, holding: bool, now: Instant) {
        self.versions.retain(|_, earlier| holding || now.duration_since(earlier.edited) < KEEP);
        let before = std::mem::replace(&mut self.current, objects.clone());
        if Arc::ptr_eq(&before, objects) {
            return;
        }
        for Edit { id, before: object } in CULPRIT_KINDS.iter().flat_map(|kind| objects.edits_since(&before, *kind)) {
            let is_known = self.versions.contains_key(&id);
            let is_kept = if is_known { !holding } else { self.versions.len() < MOST };
            if is_kept {
                self.versions.insert(id, Earlier { object, edited: now });
            }
        }
    }

    /// `None`: it is not known, or there was none.
    pub(super) fn find(&self, id: &ObjectId) -> Option<AnyObject> {
        self.versions.get(id)?.object.clone()
    }
}

#[cfg(test)]
mod tests {
    use config::store::{Store, StoreOptions, Update};

    use super::*;

    fn rule(seconds: u8) -> Update {
        let text = format!(
            "{{apiVersion: networking.istio.io/v1, kind: DestinationRule, metadata: {{name: cart, namespace: shop}}, spec: \
             {{host: cart, trafficPolicy: {{connectionPool: {{tcp: {{connectTimeout: {seconds}s}}}}}}}}}}"
        );
        Update::Put(config::object::parse_documents("rule.yaml", &text).objects.pop().expect("a rule"))
    }

    fn store() -> Store {
        Store::new(StoreOptions { pod_namespace: "istio-system".into(), mesh_config: None })
    }

    fn id() -> ObjectId {
        ObjectId { kind: config::kind::Kind::DestinationRule, namespace: "shop".into(), name: "cart".into() }
    }

    /// The rule that is known to be earlier, against this one.
    fn is_rule(earlier: &EarlierObjects, seconds: u8) -> bool {
        let Update::Put(want) = rule(seconds) else { unreachable!() };
        match (earlier.find(&id()), want) {
            (Some(AnyObject::DestinationRule(found)), AnyObject::DestinationRule(want)) => *found == *want,
            _ => false,
        }
    }

    #[test]
    fn the_version_before_the_first_of_several_edits_stays_while_something_is_held() {
        let (mut store, now) = (store(), Instant::now());
        let mut earlier = EarlierObjects::new(store.apply(vec![rule(1)]));
        earlier.follow(&store.apply(vec![rule(2)]), false, now);
        assert!(is_rule(&earlier, 1));
        let later = now + 10 * KEEP;
        earlier.follow(&store.apply(vec![rule(3)]), true, later);
        assert!(is_rule(&earlier, 1));
        earlier.follow(&store.apply(vec![rule(4)]), false, later);
        assert!(is_rule(&earlier, 3), "nothing was held: the last version was taken");
        earlier.follow(&store.snapshot(), false, later + KEEP);
        assert!(earlier.find(&id()).is_none());
    }

    #[test]
    fn a_new_object_has_no_earlier_version_after_an_edit_either() {
        let (mut store, now) = (store(), Instant::now());
        let mut earlier = EarlierObjects::new(store.snapshot());
        earlier.follow(&store.apply(vec![rule(1)]), false, now);
        earlier.follow(&store.apply(vec![rule(2)]), true, now);
        assert!(earlier.find(&id()).is_none());
    }
}
