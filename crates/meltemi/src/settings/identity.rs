//! What flags and variables say of identity: the authority, who is believed, and what an identity allows.

use std::path::PathBuf;
use std::time::Duration;

use ca::{KeyType, Lifetimes};
use ipnet::IpNet;

use super::Unused;
use crate::args::IdentityEnv;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    /// Where the root and the key of tokens are kept. `None`: there is no home folder either.
    pub(crate) state: Option<PathBuf>,
    /// ROOT_CA_DIR: an authority that somebody else made.
    pub(crate) plugged: PathBuf,
    pub(crate) key: KeyType,
    /// CITADEL_SELF_SIGNED_CA_CERT_TTL.
    pub(crate) root_lifetime: Duration,
    /// CITADEL_SELF_SIGNED_ROOT_CERT_GRACE_PERIOD_PERCENTILE.
    pub(crate) grace_percent: u32,
    pub(crate) lifetimes: Lifetimes,
    /// TOKEN_AUDIENCES.
    pub(crate) audiences: Vec<String>,
    /// --jwks: keys of tokens that are believed besides our own.
    pub(crate) jwks: Option<PathBuf>,
    /// TRUSTED_GATEWAY_CIDR.
    pub(crate) trusted_gateways: Vec<IpNet>,
    /// ISTIOD_CUSTOM_HOST: names of the serving certificate besides the usual ones.
    pub(crate) hosts: Vec<String>,
    /// XDS_AUTH.
    pub(crate) authenticate: bool,
    /// PILOT_ENABLE_XDS_IDENTITY_CHECK.
    pub(crate) check: bool,
}

pub(crate) const NO_STATE: &str = "there is no home folder to keep the root in; name a folder with --stateDir";
const HOUR: Duration = Duration::from_secs(3600);

impl Identity {
    pub(super) fn new(
        state: Option<PathBuf>,
        jwks: Option<PathBuf>,
        env: &IdentityEnv,
        unused: &mut Unused,
    ) -> Identity {
        let lifetimes = Lifetimes::default();
        Identity {
            state: state_folder(state, env),
            plugged: env.root_ca_dir.as_deref().unwrap_or("./etc/cacerts").into(),
            key: key_type(env, unused),
            root_lifetime: unused.duration("CITADEL_SELF_SIGNED_CA_CERT_TTL", &env.root_ttl, 87_600 * HOUR),
            grace_percent: unused.number("CITADEL_SELF_SIGNED_ROOT_CERT_GRACE_PERIOD_PERCENTILE", &env.root_grace, 20),
            lifetimes: Lifetimes {
                default: unused.duration("DEFAULT_WORKLOAD_CERT_TTL", &env.default_ttl, lifetimes.default),
                max: unused.duration("MAX_WORKLOAD_CERT_TTL", &env.max_ttl, lifetimes.max),
                fixed: Some(unused.duration("PILOT_WORKLOAD_CERT_TTL", &env.workload_ttl, Duration::ZERO))
                    .filter(|fixed| !fixed.is_zero()),
            },
            audiences: list(&env.token_audiences, "istio-ca"),
            jwks,
            trusted_gateways: networks(env, unused),
            hosts: list(&env.custom_host, ""),
            authenticate: unused.read("XDS_AUTH", &env.xds_auth, true, |text| crate::args::truth(text).ok()),
            check: unused.read("PILOT_ENABLE_XDS_IDENTITY_CHECK", &env.identity_check, true, |text| {
                crate::args::truth(text).ok()
            }),
        }
    }
}

/// --stateDir, else the user's state folder of the XDG convention.
pub(crate) fn state_folder(flag: Option<PathBuf>, env: &IdentityEnv) -> Option<PathBuf> {
    let home = || env.home.as_ref().map(|home| PathBuf::from(home).join(".local/state"));
    let default = || env.state_home.as_ref().map(PathBuf::from).or_else(home).map(|state| state.join("meltemi"));
    flag.or_else(default)
}

/// istiod's own variable for the size of RSA keys counts where ours is not set.
fn key_type(env: &IdentityEnv, unused: &mut Unused) -> KeyType {
    let rsa = match env.rsa_key_size.as_deref() {
        Some("2048") => KeyType::Rsa2048,
        Some("4096") => KeyType::Rsa4096,
        _ => KeyType::default(),
    };
    unused.read("CITADEL_SELF_SIGNED_CA_KEY_TYPE", &env.key_type, rsa, |text| text.parse().ok())
}

fn networks(env: &IdentityEnv, unused: &mut Unused) -> Vec<IpNet> {
    unused.read("TRUSTED_GATEWAY_CIDR", &env.trusted_gateways, Vec::new(), |text| {
        text.split(',').map(|network| network.trim().parse().ok()).collect()
    })
}

fn list(text: &Option<String>, default: &str) -> Vec<String> {
    let parts = text.as_deref().unwrap_or(default).split(',').map(str::trim).filter(|part| !part.is_empty());
    parts.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(env: &IdentityEnv) -> (Identity, Vec<String>) {
        let mut unused = Unused::default();
        let identity = Identity::new(Some("s".into()), None, env, &mut unused);
        (identity, unused.0)
    }

    #[test]
    fn defaults_are_istiods_but_for_the_kind_of_key() {
        let (identity, unused) = identity(&IdentityEnv::default());
        assert!(unused.is_empty() && identity.authenticate && identity.check);
        assert_eq!(identity.key, KeyType::P256);
        assert_eq!((identity.lifetimes, identity.root_lifetime), (Lifetimes::default(), 87_600 * HOUR));
        assert_eq!(identity.audiences, ["istio-ca"]);
    }

    #[test]
    fn the_kind_of_key_by_either_variable() {
        let env = IdentityEnv { rsa_key_size: Some("4096".into()), ..IdentityEnv::default() };
        assert_eq!(identity(&env).0.key, KeyType::Rsa4096);
        let env = IdentityEnv { key_type: Some("P-384".into()), ..env };
        assert_eq!(identity(&env).0.key, KeyType::P384);
        let env = IdentityEnv { key_type: Some("DSA".into()), ..IdentityEnv::default() };
        assert_eq!(identity(&env).1.len(), 1);
    }

    #[test]
    fn a_fixed_lifetime_is_only_what_is_set() {
        let env = IdentityEnv { workload_ttl: Some("48h".into()), ..IdentityEnv::default() };
        assert_eq!(identity(&env).0.lifetimes.fixed, Some(48 * HOUR));
        assert_eq!(identity(&IdentityEnv::default()).0.lifetimes.fixed, None);
    }

    #[test]
    fn the_state_folder_follows_the_convention() {
        let env = IdentityEnv { home: Some("/h".into()), ..IdentityEnv::default() };
        assert_eq!(state_folder(None, &env).unwrap(), PathBuf::from("/h/.local/state/meltemi"));
        let env = IdentityEnv { state_home: Some("/x".into()), ..env };
        assert_eq!(state_folder(None, &env).unwrap(), PathBuf::from("/x/meltemi"));
        assert_eq!(state_folder(None, &IdentityEnv::default()), None);
    }

    #[test]
    fn networks_are_all_or_nothing() {
        let env = IdentityEnv { trusted_gateways: Some("10.0.0.0/8, fd00::/8".into()), ..IdentityEnv::default() };
        assert_eq!(identity(&env).0.trusted_gateways.len(), 2);
        let env = IdentityEnv { trusted_gateways: Some("10.0.0.0/8,all".into()), ..IdentityEnv::default() };
        let (wrong, unused) = identity(&env);
        assert!(wrong.trusted_gateways.is_empty() && unused.len() == 1);
    }
}
