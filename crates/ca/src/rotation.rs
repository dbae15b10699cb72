//! Root rotation in three stages, so that no workload meets a certificate whose root it does not trust: the new root is distributed beside the
//! old one, then it signs, then the old one is removed. The caller decides when to advance.

use std::{collections::BTreeMap, fs, time::SystemTime};

use zeroize::Zeroizing;

use crate::{
    Authority, Certificate, InvalidCertificate, PrivateKey, RootError, RootFolder, RootOptions, bundle,
    root::{CERTIFICATE, KEY},
};

/// The root that will sign next.
const NEXT_KEY: &str = "next-key.pem";
const NEXT: &str = "next-cert.pem";
/// The root that signed before.
const OLD: &str = "old-cert.pem";

/// In the order of writing: trust before signing, keys before their certificates.
const FILES: [&str; 5] = [OLD, KEY, CERTIFICATE, NEXT_KEY, NEXT];

/// PEM by file name; some are private keys.
pub type CaFiles = BTreeMap<String, Zeroizing<String>>;

/// The stage of a rotation, derived from the files alone, so that it survives a restart at any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RotationStage {
    /// One root, which signs.
    Settled,
    /// The old root signs, both are trusted.
    Announced,
    /// The new root signs, both are trusted.
    Switched,
}

impl RotationStage {
    pub fn name(self) -> &'static str {
        match self {
            RotationStage::Settled => "settled",
            RotationStage::Announced => "announced",
            RotationStage::Switched => "switched",
        }
    }
}

impl RootFolder {
    /// The stage, and since when.
    pub fn stage(&self) -> (RotationStage, Option<SystemTime>) {
        let since = |name: &str| fs::metadata(self.0.join(name)).and_then(|file| file.modified()).ok();
        match (since(NEXT), since(OLD)) {
            (Some(at), _) => (RotationStage::Announced, Some(at)),
            (None, Some(at)) => (RotationStage::Switched, Some(at)),
            (None, None) => (RotationStage::Settled, None),
        }
    }

    /// Advances to the next stage. A new key has the configured type.
    pub fn advance(&self, options: &RootOptions, now: SystemTime) -> Result<RotationStage, RootError> {
        let (folder, _lock) = (self.folder(), self.folder().lock()?);
        self.complete_interrupted_switch()?;
        match self.stage().0 {
            RotationStage::Settled => {
                let (key, root) = options.generate(now)?;
                folder.write(&[(NEXT_KEY, &key.pem()), (NEXT, &root.pem())])?;
            }
            RotationStage::Announced => {
                let old = self.text(CERTIFICATE)?.ok_or_else(|| RootError::Lost(self.0.clone()))?;
                folder.write(&[(OLD, &old)])?;
                folder.rename(NEXT_KEY, KEY)?;
                folder.rename(NEXT, CERTIFICATE)?;
            }
            RotationStage::Switched => folder.remove(OLD)?,
        }
        Ok(self.stage().0)
    }

    /// The files of the next stage; writes nothing. For a store with compare-and-swap.
    pub fn next_files(&self, options: &RootOptions, now: SystemTime) -> Result<CaFiles, RootError> {
        let lost = || RootError::Lost(self.0.clone());
        let mut material = self.material()?;
        match self.stage().0 {
            RotationStage::Settled => {
                let (key, root) = options.generate(now)?;
                material.insert(NEXT_KEY.to_owned(), key.pem());
                material.insert(NEXT.to_owned(), Zeroizing::new(root.pem()));
            }
            RotationStage::Announced => {
                let (key, root) = (material.remove(NEXT_KEY), material.remove(NEXT));
                material.insert(KEY.to_owned(), key.ok_or_else(lost)?);
                let old = material.insert(CERTIFICATE.to_owned(), root.ok_or_else(lost)?);
                material.insert(OLD.to_owned(), old.ok_or_else(lost)?);
            }
            RotationStage::Switched => drop(material.remove(OLD)),
        }
        Ok(material)
    }

    /// Whether an authority has the roots of the folder, in their order: the first one signs.
    pub fn is_loaded(&self, authority: &Authority) -> Result<bool, RootError> {
        let own = self.text(CERTIFICATE)?.ok_or_else(|| RootError::Lost(self.0.clone()))?;
        let mut roots = bundle(&own).map_err(|why| self.unusable(why))?;
        roots.truncate(1);
        let others = self.other_roots()?.into_iter().filter(|other| !roots.contains(other)).collect::<Vec<_>>();
        roots.extend(others);
        Ok(roots == authority.roots())
    }

    /// The content of all files.
    pub fn material(&self) -> Result<CaFiles, RootError> {
        let _lock = self.folder().lock()?;
        let mut all = CaFiles::new();
        for name in FILES {
            if let Some(text) = self.text(name)? {
                all.insert(name.to_owned(), text);
            }
        }
        Ok(all)
    }

    /// Replaces all files: another replica has rotated or renewed the root.
    pub fn adopt(&self, material: &CaFiles) -> Result<(), RootError> {
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

    /// Checks that it is a CA at any stage, or in a stage transition that a crash interrupted.
    fn check(&self, material: &CaFiles) -> Result<(), RootError> {
        let text = |name: &str| material.get(name).map_or("", |text| text.as_str());
        let key = |name| PrivateKey::from_pem(text(name)).map_err(|_| self.unusable(InvalidCertificate::Key));
        let certificate = |name| bundle(text(name)).map_err(|why| self.unusable(why));
        let (signs, root) = (key(KEY)?, certificate(CERTIFICATE)?);
        if material.contains_key(OLD) {
            certificate(OLD)?;
        }
        let belongs = |found: &[Certificate], key: &PrivateKey| found.first().is_some_and(|first| first.has_key(key));
        let cut = match (material.contains_key(NEXT_KEY), material.contains_key(NEXT)) {
            (false, false) => false,
            (true, false) => return Err(self.incomplete(NEXT_KEY, NEXT)),
            (true, true) if belongs(&certificate(NEXT)?, &key(NEXT_KEY)?) => false,
            (true, true) => return Err(self.unusable(InvalidCertificate::Mismatch)),
            (false, true) if material.contains_key(OLD) && belongs(&certificate(NEXT)?, &signs) => true,
            (false, true) => return Err(self.incomplete(NEXT, NEXT_KEY)),
        };
        if cut || belongs(&root, &signs) { Ok(()) } else { Err(self.unusable(InvalidCertificate::Mismatch)) }
    }

    /// Completes a switch that a crash interrupted: the old root is recorded and the key has moved, its certificate has not. Any other key
    /// without its certificate, or the reverse, has another cause.
    pub(crate) fn complete_interrupted_switch(&self) -> Result<(), RootError> {
        match (self.text(NEXT_KEY)?, self.text(NEXT)?) {
            (Some(_), Some(_)) | (None, None) => Ok(()),
            (Some(_), None) => Err(self.incomplete(NEXT_KEY, NEXT)),
            (None, Some(next)) => {
                let key = self.text(KEY)?.and_then(|key| PrivateKey::from_pem(&key).ok());
                let next = bundle(&next).map_err(|why| self.unusable(why))?;
                let has_moved = key.is_some_and(|key| next[0].has_key(&key)) && self.text(OLD)?.is_some();
                if !has_moved {
                    return Err(self.incomplete(NEXT, NEXT_KEY));
                }
                Ok(self.folder().rename(NEXT, CERTIFICATE)?)
            }
        }
    }

    /// Roots besides the signing one.
    pub(crate) fn other_roots(&self) -> Result<Vec<Certificate>, RootError> {
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

    /// At every stage, certificates signed at this stage and the one before are trusted.
    #[test]
    fn no_stage_signs_what_the_stage_before_does_not_trust() {
        let folder = tempfile::tempdir().unwrap();
        let root_folder = RootFolder(folder.path().join("ca"));
        let (options, now) = (options(KeyType::P256), SystemTime::now());
        let trusts =
            |authority: &Authority, leaf: &Certificate| authority.roots().iter().any(|root| leaf.is_signed_by(root));
        let mut before = root_folder.authority(&options, 0, now).unwrap();
        let first = before.roots_pem();
        for stage in [RotationStage::Announced, RotationStage::Switched, RotationStage::Settled] {
            assert_eq!(root_folder.advance(&options, now).unwrap(), stage);
            let after = root_folder.known(&options, 0, now).unwrap();
            assert!(trusts(&before, &leaf(&after)), "{stage:?}: a proxy of the stage before meets an unknown root");
            assert!(trusts(&after, &leaf(&before)), "{stage:?}: a certificate of the stage before is rejected");
            before = after;
        }
        assert_ne!(before.roots_pem(), first);
        assert_eq!(before.roots().len(), 1);
    }

    #[test]
    fn a_root_becomes_elliptic_by_the_setting_alone() {
        let folder = tempfile::tempdir().unwrap();
        let root_folder = RootFolder(folder.path().join("ca"));
        let now = SystemTime::now();
        let size = |authority: &Authority| authority.roots()[0].public_key.len();
        let rsa = root_folder.authority(&options(KeyType::Rsa2048), 0, now).unwrap();
        for _ in 0..3 {
            root_folder.advance(&options(KeyType::P256), now).unwrap();
        }
        let elliptic = root_folder.known(&options(KeyType::P256), 0, now).unwrap();
        assert!(size(&rsa) > 256 && size(&elliptic) < 100);
    }

    #[test]
    fn an_interrupted_switch_is_completed() {
        let folder = tempfile::tempdir().unwrap();
        let root_folder = RootFolder(folder.path().join("ca"));
        let (options, now) = (options(KeyType::P256), SystemTime::now());
        let old = root_folder.authority(&options, 0, now).unwrap();
        root_folder.advance(&options, now).unwrap();
        root_folder.folder().write(&[(OLD, &old.roots_pem())]).unwrap();
        assert!(root_folder.known(&options, 0, now).is_ok(), "the old root was noted, nothing has moved yet");
        root_folder.folder().rename(NEXT_KEY, KEY).unwrap();
        let cut = root_folder.material().unwrap();
        let mended = root_folder.known(&options, 0, now).unwrap();
        assert_eq!((root_folder.stage().0, mended.roots().len()), (RotationStage::Switched, 2));
        // Another replica may read the interrupted state, too.
        root_folder.adopt(&cut).unwrap();
        assert_eq!(root_folder.known(&options, 0, now).unwrap().roots_pem(), mended.roots_pem());
    }

    #[test]
    fn rejects_half_of_the_next_root() {
        for (lost, left) in [(NEXT, NEXT_KEY), (NEXT_KEY, NEXT)] {
            let folder = tempfile::tempdir().unwrap();
            let root_folder = RootFolder(folder.path().join("ca"));
            let (options, now) = (options(KeyType::P256), SystemTime::now());
            root_folder.authority(&options, 0, now).unwrap();
            root_folder.advance(&options, now).unwrap();
            fs::remove_file(root_folder.0.join(lost)).unwrap();
            let before = root_folder.material().unwrap();
            let errors = [
                root_folder.authority(&options, 0, now).err(),
                root_folder.known(&options, 0, now).err(),
                root_folder.advance(&options, now).err(),
                root_folder.adopt(&before).err(),
            ];
            for error in errors {
                let error = error.unwrap().to_string();
                assert!(
                    error.contains(lost) && error.contains(left) && error.contains("abort the rotation"),
                    "{error}"
                );
            }
            assert!(root_folder.material().unwrap() == before, "what survived is as it was");
            fs::remove_file(root_folder.0.join(left)).unwrap();
            assert!(root_folder.authority(&options, 0, now).is_ok(), "the change was given up");
        }
    }

    #[test]
    fn the_next_material_is_what_the_next_stage_writes() {
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let [files, store] = folders.each_ref().map(|folder| RootFolder(folder.path().join("ca")));
        let (options, now) = (options(KeyType::P256), SystemTime::now());
        let mut loaded = files.authority(&options, 20, now).unwrap();
        for stage in [RotationStage::Announced, RotationStage::Switched, RotationStage::Settled] {
            let next = files.next_files(&options, now).unwrap();
            assert!(files.is_loaded(&loaded).unwrap(), "it writes nothing");
            store.adopt(&next).unwrap();
            assert_eq!(store.stage().0, stage);
            assert!(!store.is_loaded(&loaded).unwrap(), "{stage:?}");
            files.advance(&options, now).unwrap();
            if stage == RotationStage::Announced {
                files.adopt(&next).unwrap();
            }
            assert_eq!(files.material().unwrap(), next);
            loaded = files.known(&options, 20, now).unwrap();
        }
    }

    #[test]
    fn another_replica_follows_through_all_stages() {
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let [first, second] = folders.each_ref().map(|folder| RootFolder(folder.path().join("ca")));
        let (options, now) = (options(KeyType::P256), SystemTime::now());
        first.authority(&options, 20, now).unwrap();
        for stage in [RotationStage::Announced, RotationStage::Switched, RotationStage::Settled] {
            first.advance(&options, now).unwrap();
            second.adopt(&first.material().unwrap()).unwrap();
            assert_eq!(second.stage().0, stage);
            let roots = [&first, &second].map(|root_folder| root_folder.known(&options, 20, now).unwrap().roots_pem());
            assert_eq!(roots[0], roots[1]);
        }
        let mut broken = first.material().unwrap();
        broken.insert(KEY.to_owned(), "lost".to_owned().into());
        assert!(second.adopt(&broken).is_err());
        broken.insert(KEY.to_owned(), PrivateKey::generate(KeyType::P256).unwrap().pem());
        assert!(second.adopt(&broken).is_err(), "a key of another certificate");
        assert_eq!(first.material().unwrap(), second.material().unwrap(), "what is broken is not taken over");
        broken.remove(KEY);
        assert!(second.adopt(&broken).is_err());
    }
}
