//! Secrets of one proxy whose identity was proven: looked up when they are asked for, and again when what they are made from changes.
//! Whether a proxy may have one is asked for each proxy; only what all may have who come that far is shared.

mod vault;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use model::{Credential, CredentialName, Delta, Placement, Reader};
use xds::{Changes, Resource, Seq};

pub(crate) use vault::Vault;

use vault::Closed;

/// What is decided about credentials elsewhere. Called from streams: answers come from memory.
pub trait Guard: Send + Sync {
    /// Whether a service account may read the Secrets of its namespace. `None`: somebody has been asked; nothing is given and nothing is
    /// said until the answer is there and [`Views::review`](crate::Views::review) is called.
    fn may_read(&self, reader: &Reader) -> Option<bool>;

    /// Whether clients and proxies can use it; else why not. Asked once for each content.
    fn inspect(&self, credential: &Credential<'_>) -> Result<(), String>;

    /// A proxy asked for a secret and does not get it (yet). Told once for each reason.
    fn withheld(&self, proxy: &str, name: &str, why: &str);
}

/// Names that one stream may ask for as long as it lives: more than that is no gateway.
const MOST: usize = 20_000;

#[derive(Debug)]
pub(crate) struct Secrets {
    vault: Arc<Vault>,
    reader: Reader,
    asked: Mutex<BTreeMap<Arc<str>, Asked>>,
}

/// What stands behind a name that was asked for.
#[derive(Debug)]
struct Asked {
    /// `None`: nothing can be behind it; that is said once.
    wanted: Option<CredentialName>,
    /// `None`: it may not have it, there is nothing, or it cannot be used; `why` says which. Or that is not known yet.
    resource: Option<Arc<Resource>>,
    why: String,
    /// When the resource last changed.
    at: Seq,
}

/// Why names are looked at again.
#[derive(Clone, Copy)]
pub(crate) enum Review<'a> {
    Changed(&'a Delta),
    /// What the guard says may be another.
    Everything,
}

impl Secrets {
    pub(crate) fn new(vault: Arc<Vault>, reader: Reader) -> Self {
        Self { vault, reader, asked: Mutex::default() }
    }

    /// `None`: it does not get it now. It is told once it does.
    pub(crate) fn named(&self, placement: impl Fn() -> Placement, name: &str) -> Option<Arc<Resource>> {
        // Held until the answer is noted: whatever changes meanwhile is looked at afterwards.
        let mut asked = self.asked();
        if asked.len() >= MOST && !asked.contains_key(name) {
            return None;
        }
        let entry = asked.entry(Arc::from(name)).or_insert_with_key(|name| Asked::new(name));
        self.look(entry, name, &placement());
        entry.resource.clone()
    }

    /// A secret that went is not taken from a proxy: its listeners would stop, and nobody is safer.
    pub(crate) fn since(&self, since: Seq) -> Changes {
        let asked = self.asked();
        let new = asked.values().filter(|asked| asked.at > since || since == 0);
        let changed = new.filter_map(|asked| asked.resource.clone()).collect();
        Changes { seq: self.vault.seq(), changed, full: since == 0, ..Changes::default() }
    }

    /// Answers whether something that it asked for is new.
    pub(crate) fn review(&self, review: Review<'_>, placement: &Placement) -> bool {
        let mut news = false;
        for (name, entry) in self.asked().iter_mut() {
            if entry.wanted.as_ref().is_some_and(|wanted| review.concerns(wanted, &self.reader)) {
                news |= self.look(entry, name, placement);
            }
        }
        news
    }

    /// Answers whether there is another resource.
    fn look(&self, asked: &mut Asked, name: &str, placement: &Placement) -> bool {
        match self.vault.open(name, asked.wanted.as_ref(), &self.reader, placement) {
            Ok(found) => {
                let same = asked.resource.as_ref().is_some_and(|held| held.version == found.version);
                asked.why.clear();
                if !same {
                    asked.at = self.vault.seq();
                    asked.resource = Some(found);
                }
                !same
            }
            Err(Closed::Undecided) => {
                asked.resource = None;
                false
            }
            Err(Closed::For(why)) => {
                asked.resource = None;
                if asked.why != why {
                    self.vault.guard.withheld(&placement.proxy.id, name, &why);
                    asked.why = why;
                }
                false
            }
        }
    }

    // Entries are changed by assignments that cannot panic between each other.
    fn asked(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Asked>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Asked {
    fn new(name: &str) -> Self {
        Self { wanted: name.parse().ok(), resource: None, why: String::new(), at: 0 }
    }
}

impl Review<'_> {
    fn concerns(self, wanted: &CredentialName, reader: &Reader) -> bool {
        match self {
            Self::Everything => true,
            Self::Changed(delta) => {
                delta.everything
                    || delta.gateways && wanted.is_of_gateways()
                    || wanted.reads(&delta.credentials, reader)
            }
        }
    }
}
