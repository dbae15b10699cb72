//! A new root in three steps, so that nobody ever meets a certificate whose root it does not know: the new root is announced beside the
//! old one, then it signs, then the old one is forgotten. When to go on is not decided here.

use std::{collections::BTreeMap, fs, time::SystemTime};

use zeroize::Zeroizing;

use crate::{
    Authority, Certificate, KeepError, Kept, Private, RootOptions, Unusable, bundle,
    root::{CERTIFICATE, KEY},
};

/// The root that will sign next.
const NEXT_KEY: &str = "next-key.pem";
const NEXT: &str = "next-cert.pem";
/// The root that signed before.
const OLD: &str = "old-cert.pem";

/// All of it: whoever has these has the authority. In the order of writing: trusted before another signs, keys before their certificates.
const FILES: [&str; 5] = [OLD, KEY, CERTIFICATE, NEXT_KEY, NEXT];

/// Texts by file; some are private keys.
pub type Material = BTreeMap<String, Zeroizing<String>>;

/// Where a change of roots stands. Each follows from the files alone, so that it survives a restart at any moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// One root, which signs.
    Settled,
    /// The old root signs, both are trusted.
    Announced,
    /// The new root signs, both are trusted.
    Switched,
}

impl Stage {
    pub fn name(self) -> &'static str {
        match self {
            Stage::Settled => "settled",
            Stage::Announced => "announced",
            Stage::Switched => "switched",
        }
    }
}

impl Kept {
    /// Where it stands, and since when.
    pub fn stage(&self) -> (Stage, Option<SystemTime>) {
        let since = |name: &str| fs::metadata(self.0.join(name)).and_then(|file| file.modified()).ok();
        match (since(NEXT), since(OLD)) {
            (Some(at), _) => (Stage::Announced, Some(at)),
            (None, Some(at)) => (Stage::Switched, Some(at)),
            (None, None) => (Stage::Settled, None),
        }
    }

    /// The next step. The key of a new root is of the kind that the settings ask for now.
    pub fn advance(&self, options: &RootOptions, now: SystemTime) -> Result<Stage, KeepError> {
        let (folder, _lock) = (self.folder(), self.folder().lock()?);
        self.mend()?;
        match self.stage().0 {
            Stage::Settled => {
                let (key, root) = options.made(now)?;
                folder.write(&[(NEXT_KEY, &key.pem()), (NEXT, &root.pem())])?;
            }
            Stage::Announced => {
                let old = self.text(CERTIFICATE)?.ok_or_else(|| KeepError::Lost(self.0.clone()))?;
                folder.write(&[(OLD, &old)])?;
                folder.rename(NEXT_KEY, KEY)?;
                folder.rename(NEXT, CERTIFICATE)?;
            }
            Stage::Switched => folder.remove(OLD)?,
        }
        Ok(self.stage().0)
    }

    /// What the folder would hold at the next stage; nothing is written. For a store that takes it by compare-and-swap.
    pub fn next_material(&self, options: &RootOptions, now: SystemTime) -> Result<Material, KeepError> {
        let lost = || KeepError::Lost(self.0.clone());
        let mut material = self.material()?;
        match self.stage().0 {
            Stage::Settled => {
                let (key, root) = options.made(now)?;
                material.insert(NEXT_KEY.to_owned(), key.pem());
                material.insert(NEXT.to_owned(), Zeroizing::new(root.pem()));
            }
            Stage::Announced => {
                let (key, root) = (material.remove(NEXT_KEY), material.remove(NEXT));
                material.insert(KEY.to_owned(), key.ok_or_else(lost)?);
                let old = material.insert(CERTIFICATE.to_owned(), root.ok_or_else(lost)?);
                material.insert(OLD.to_owned(), old.ok_or_else(lost)?);
            }
            Stage::Switched => drop(material.remove(OLD)),
        }
        Ok(material)
    }

    /// Whether an authority has the roots of the folder, in their order: the first one signs.
    pub fn is_loaded(&self, authority: &Authority) -> Result<bool, KeepError> {
        let own = self.text(CERTIFICATE)?.ok_or_else(|| KeepError::Lost(self.0.clone()))?;
        let mut roots = bundle(&own).map_err(|why| self.unusable(why))?;
        roots.truncate(1);
        let others = self.other_roots()?.into_iter().filter(|other| !roots.contains(other)).collect::<Vec<_>>();
        roots.extend(others);
        Ok(roots == authority.roots())
    }

    /// All that the folder holds, by file.
    pub fn material(&self) -> Result<Material, KeepError> {
        let _lock = self.folder().lock()?;
        let mut all = Material::new();
        for name in FILES {
            if let Some(text) = self.text(name)? {
                all.insert(name.to_owned(), text);
            }
        }
        Ok(all)
    }

    /// Makes the folder hold this and nothing else: another replica has changed or renewed the root.
    pub fn adopt(&self, material: &Material) -> Result<(), KeepError> {
        self.check(material)?;
        self.folder().create()?;
        let (folder, _lock) = (self.folder(), self.folder().lock()?);
        let mut changed = Vec::new();
        for (name, text) in FILES.into_iter().filter_map(|name| Some((name, material.get(name)?))) {
            if self.text(name)?.as_ref() != Some(text) {
                changed.push((name, text.as_str()));
            }
        }
        folder.write(&changed)?;
        let gone = FILES.into_iter().filter(|name| !material.contains_key(*name));
        gone.into_iter().try_for_each(|name| Ok(folder.remove(name)?))
    }

    /// Whether it is an authority at any stage, or one of which a crash cut a step in two.
    fn check(&self, material: &Material) -> Result<(), KeepError> {
        let text = |name: &str| material.get(name).map_or("", |text| text.as_str());
        let key = |name| Private::from_pem(text(name)).map_err(|_| self.unusable(Unusable::Key));
        let certificate = |name| bundle(text(name)).map_err(|why| self.unusable(why));
        let (signs, root) = (key(KEY)?, certificate(CERTIFICATE)?);
        if material.contains_key(OLD) {
            certificate(OLD)?;
        }
        let belongs = |found: &[Certificate], key: &Private| found.first().is_some_and(|first| first.is_of(key));
        let cut = match (material.contains_key(NEXT_KEY), material.contains_key(NEXT)) {
            (false, false) => false,
            (true, false) => return Err(self.half(NEXT_KEY, NEXT)),
            (true, true) if belongs(&certificate(NEXT)?, &key(NEXT_KEY)?) => false,
            (true, true) => return Err(self.unusable(Unusable::Mismatch)),
            (false, true) if material.contains_key(OLD) && belongs(&certificate(NEXT)?, &signs) => true,
            (false, true) => return Err(self.half(NEXT, NEXT_KEY)),
        };
        if cut || belongs(&root, &signs) { Ok(()) } else { Err(self.unusable(Unusable::Mismatch)) }
    }

    /// Finishes a switch that a crash cut in two: the old root was noted and the key has moved, its certificate has not. Any other key
    /// without its certificate, or the reverse, was not left by us.
    pub(crate) fn mend(&self) -> Result<(), KeepError> {
        match (self.text(NEXT_KEY)?, self.text(NEXT)?) {
            (Some(_), Some(_)) | (None, None) => Ok(()),
            (Some(_), None) => Err(self.half(NEXT_KEY, NEXT)),
            (None, Some(next)) => {
                let key = self.text(KEY)?.and_then(|key| Private::from_pem(&key).ok());
                let next = bundle(&next).map_err(|why| self.unusable(why))?;
                let has_moved = key.is_some_and(|key| next[0].is_of(&key)) && self.text(OLD)?.is_some();
                if !has_moved {
                    return Err(self.half(NEXT, NEXT_KEY));
                }
                Ok(self.folder().rename(NEXT, CERTIFICATE)?)
            }
        }
    }

    /// Roots besides the one that signs.
    pub(crate) fn other_roots(&self) -> Result<Vec<Certificate>, KeepError> {
        let mut others = Vec::new();
        for name in [NEXT, OLD] {
            if let Some(text) = self.text(name)? {
                others.extend(bundle(&text).map_err(|why| self.unusable(why))?);
            }
        }
        Ok(others)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Authority, Csr, Identity, KeyType, csr::tests::request};

    const HOUR: Duration = Duration::from_secs(3600);

    fn options(key: KeyType) -> RootOptions {
        RootOptions { key, lifetime: 24 * HOUR, organization: "cluster.local".to_owned() }
    }

    fn leaf(authority: &Authority) -> Certificate {
        let csr = Csr::parse(&request(KeyType::P256)).unwrap();
        let identity: Identity = "spiffe://cluster.local/ns/shop/sa/cart".parse().unwrap();
        let chain = authority.sign(&csr, &[identity], HOUR, SystemTime::now()).unwrap();
        bundle(&chain[0]).unwrap().remove(0)
    }

    /// At every stage, what was signed at this stage and the one before is trusted.
    #[test]
    fn no_stage_signs_what_the_stage_before_does_not_trust() {
        let folder = tempfile::tempdir().unwrap();
        let kept = Kept(folder.path().join("ca"));
        let (options, now) = (options(KeyType::P256), SystemTime::now());
        let trusts =
            |authority: &Authority, leaf: &Certificate| authority.roots().iter().any(|root| leaf.is_signed_by(root));
        let mut before = kept.authority(&options, 0, now).unwrap();
        let first = before.roots_pem();
        for stage in [Stage::Announced, Stage::Switched, Stage::Settled] {
            assert_eq!(kept.advance(&options, now).unwrap(), stage);
            let after = kept.known(&options, 0, now).unwrap();
            assert!(trusts(&before, &leaf(&after)), "{stage:?}: a proxy of the stage before meets an unknown root");
            assert!(trusts(&after, &leaf(&before)), "{stage:?}: a certificate of the stage before is refused");
            before = after;
        }
        assert_ne!(before.roots_pem(), first);
        assert_eq!(before.roots().len(), 1);
    }

    #[test]
    fn a_root_becomes_elliptic_by_the_setting_alone() {
        let folder = tempfile::tempdir().unwrap();
        let kept = Kept(folder.path().join("ca"));
        let now = SystemTime::now();
        let size = |authority: &Authority| authority.roots()[0].public_key.len();
        let rsa = kept.authority(&options(KeyType::Rsa2048), 0, now).unwrap();
        for _ in 0..3 {
            kept.advance(&options(KeyType::P256), now).unwrap();
        }
        let elliptic = kept.known(&options(KeyType::P256), 0, now).unwrap();
        assert!(size(&rsa) > 256 && size(&elliptic) < 100);
    }

    #[test]
    fn a_crash_between_two_files_is_mended() {
        let folder = tempfile::tempdir().unwrap();
        let kept = Kept(folder.path().join("ca"));
        let (options, now) = (options(KeyType::P256), SystemTime::now());
        let old = kept.authority(&options, 0, now).unwrap();
        kept.advance(&options, now).unwrap();
        kept.folder().write(&[(OLD, &old.roots_pem())]).unwrap();
        assert!(kept.known(&options, 0, now).is_ok(), "the old root was noted, nothing has moved yet");
        kept.folder().rename(NEXT_KEY, KEY).unwrap();
        let cut = kept.material().unwrap();
        let mended = kept.known(&options, 0, now).unwrap();
        assert_eq!((kept.stage().0, mended.roots().len()), (Stage::Switched, 2));
        // Another replica may see it as it was, too.
        kept.adopt(&cut).unwrap();
        assert_eq!(kept.known(&options, 0, now).unwrap().roots_pem(), mended.roots_pem());
    }

    #[test]
    fn rejects_half_of_the_next_root() {
        for (lost, left) in [(NEXT, NEXT_KEY), (NEXT_KEY, NEXT)] {
            let folder = tempfile::tempdir().unwrap();
            let kept = Kept(folder.path().join("ca"));
            let (options, now) = (options(KeyType::P256), SystemTime::now());
            kept.authority(&options, 0, now).unwrap();
            kept.advance(&options, now).unwrap();
            fs::remove_file(kept.0.join(lost)).unwrap();
            let before = kept.material().unwrap();
            let errors = [
                kept.authority(&options, 0, now).err(),
                kept.known(&options, 0, now).err(),
                kept.advance(&options, now).err(),
                kept.adopt(&before).err(),
            ];
            for error in errors {
                let error = error.unwrap().to_string();
                assert!(error.contains(lost) && error.contains(left) && error.contains("change of roots"), "{error}");
            }
            assert!(kept.material().unwrap() == before, "what survived is as it was");
            fs::remove_file(kept.0.join(left)).unwrap();
            assert!(kept.authority(&options, 0, now).is_ok(), "the change was given up");
        }
    }

    #[test]
    fn the_next_material_is_what_the_next_stage_writes() {
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let [files, store] = folders.each_ref().map(|folder| Kept(folder.path().join("ca")));
        let (options, now) = (options(KeyType::P256), SystemTime::now());
        let mut loaded = files.authority(&options, 20, now).unwrap();
        for stage in [Stage::Announced, Stage::Switched, Stage::Settled] {
            let next = files.next_material(&options, now).unwrap();
            assert!(files.is_loaded(&loaded).unwrap(), "it writes nothing");
            store.adopt(&next).unwrap();
            assert_eq!(store.stage().0, stage);
            assert!(!store.is_loaded(&loaded).unwrap(), "{stage:?}");
            files.advance(&options, now).unwrap();
            if stage == Stage::Announced {
                files.adopt(&next).unwrap();
            }
            assert_eq!(files.material().unwrap(), next);
            loaded = files.known(&options, 20, now).unwrap();
        }
    }

    #[test]
    fn another_replica_follows_through_all_stages() {
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let [first, second] = folders.each_ref().map(|folder| Kept(folder.path().join("ca")));
        let (options, now) = (options(KeyType::P256), SystemTime::now());
        first.authority(&options, 20, now).unwrap();
        for stage in [Stage::Announced, Stage::Switched, Stage::Settled] {
            first.advance(&options, now).unwrap();
            second.adopt(&first.material().unwrap()).unwrap();
            assert_eq!(second.stage().0, stage);
            let roots = [&first, &second].map(|kept| kept.known(&options, 20, now).unwrap().roots_pem());
            assert_eq!(roots[0], roots[1]);
        }
        let mut broken = first.material().unwrap();
        broken.insert(KEY.to_owned(), "lost".to_owned().into());
        assert!(second.adopt(&broken).is_err());
        broken.insert(KEY.to_owned(), Private::generate(KeyType::P256).unwrap().pem());
        assert!(second.adopt(&broken).is_err(), "a key of another certificate");
        assert_eq!(first.material().unwrap(), second.material().unwrap(), "what is broken is not taken over");
        broken.remove(KEY);
        assert!(second.adopt(&broken).is_err());
    }
}
