//! What flags and variables say of identity: the authority, who is believed, and what an identity allows.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
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
    /// MELTEMI_WORKLOAD_SECRETS: keys are made here for proxies without an agent.
    pub(crate) workload_secrets: bool,
    /// MELTEMI_XDS_IDENTITY=strict: what a node says of itself must be proven.
    pub(crate) strict: bool,
    /// EXTERNAL_CA: somebody else signs. `None`: we do.
    pub(crate) external: Option<External>,
    /// EXTERNAL_CA=ISTIOD_RA_KUBERNETES_API: a signer of the cluster signs for workloads.
    pub(crate) signer: Option<ClusterSigner>,
}

/// Signers that take requests by the API server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClusterSigner {
    /// K8S_SIGNER: for whoever asks for none. Empty: everybody must ask for one.
    pub(crate) signer: String,
    /// CERT_SIGNER_DOMAIN: before the name that a workload asks for. Empty: none may be asked for.
    pub(crate) domain: String,
    /// PILOT_CERT_PROVIDER=k8s.io/SIGNER: who signs the certificate of the secure port. `None`: our own authority.
    pub(crate) serving: Option<String>,
    /// A file with roots of signers, besides those in the mesh config.
    pub(crate) roots: PathBuf,
}

/// An authority elsewhere that speaks the same protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct External {
    /// CA_ADDR, `host:port`.
    pub(crate) address: String,
    /// MELTEMI_CA_SERVER_NAME: the name that its certificate must have. `None`: the host of the address.
    pub(crate) name: Option<String>,
    /// CA_ROOT_CA: whom it and the workloads are checked against.
    pub(crate) roots: PathBuf,
    /// --tlsCertFile and --tlsKeyFile: what the secure port shows, since nothing is signed here.
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

/// What the command line says of identity.
pub(super) struct IdentityFlags {
    pub(super) state_dir: Option<PathBuf>,
    pub(super) jwks: Option<PathBuf>,
    pub(super) tls_cert: PathBuf,
    pub(super) tls_key: PathBuf,
}

pub(crate) const NO_STATE: &str = "there is no home folder to keep the root in; name a folder with --stateDir";
const HOUR: Duration = Duration::from_secs(3600);

impl Identity {
    pub(super) fn new(flags: IdentityFlags, env: &IdentityEnv, unused: &mut Unused) -> Result<Identity> {
        let lifetimes = Lifetimes::default();
        let IdentityFlags { state_dir, jwks, tls_cert, tls_key } = flags;
        let signer = ClusterSigner::new(env, unused)?;
        let external = signer.is_none() && unused.truth("EXTERNAL_CA", &env.external_ca);
        Ok(Identity {
            signer,
            external: external.then(|| External::new(env, tls_cert, tls_key)).transpose()?,
            strict: unused.read("MELTEMI_XDS_IDENTITY", &env.xds_identity, false, |text| match text {
                "compat" => Some(false),
                "strict" => Some(true),
                _ => None,
            }),
            state: state_folder(state_dir, env),
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
            workload_secrets: unused.truth("MELTEMI_WORKLOAD_SECRETS", &env.workload_secrets),
        })
    }
}

/// istiod's words.
const BY_API_SERVER: &str = "ISTIOD_RA_KUBERNETES_API";
const SIGNER: &str = "k8s.io/";

impl ClusterSigner {
    fn new(env: &IdentityEnv, unused: &mut Unused) -> Result<Option<ClusterSigner>> {
        // Otherwise the serving certificate is signed here, or read from files with an external authority.
        let provider = unused.read("PILOT_CERT_PROVIDER", &env.cert_provider, "istiod".to_owned(), |text| {
            (text == "istiod" || text.len() > SIGNER.len() && text.starts_with(SIGNER)).then(|| text.to_owned())
        });
        let serving = provider.strip_prefix(SIGNER).map(str::to_owned);
        if env.external_ca.as_deref() != Some(BY_API_SERVER) {
            if serving.is_some() {
                bail!("PILOT_CERT_PROVIDER={provider} needs EXTERNAL_CA={BY_API_SERVER}: proxies trust one authority");
            }
            return Ok(None);
        }
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        let (signer, domain) = (text(&env.signer), text(&env.signer_domain));
        if signer.is_empty() && domain.is_empty() {
            bail!(
                "EXTERNAL_CA={BY_API_SERVER} needs K8S_SIGNER, the signer's name such as issuers.cert-manager.io/istio-system.mesh, or CERT_SIGNER_DOMAIN"
            );
        }
        Ok(Some(ClusterSigner { signer, domain, serving, roots: "./etc/external-ca-cert/root-cert.pem".into() }))
    }
}

impl External {
    /// Half of it would leave a mesh without certificates, so it is refused.
    fn new(env: &IdentityEnv, certificate: PathBuf, key: PathBuf) -> Result<External> {
        let Some(address) = env.ca_address.clone() else {
            bail!("EXTERNAL_CA=true needs CA_ADDR, the authority's address as HOST:PORT");
        };
        let Some(roots) = env.ca_root.clone().map(PathBuf::from) else {
            bail!("EXTERNAL_CA=true needs CA_ROOT_CA, a file with the roots of {address} in PEM");
        };
        if address.rsplit_once(':').is_none_or(|(host, port)| host.is_empty() || port.parse::<u16>().is_err()) {
            bail!("CA_ADDR={address:?} is not an address; write it like ca.example:443");
        }
        Ok(External { address, name: env.ca_name.clone(), roots, certificate, key })
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
        let identity = Identity::new(flags(), env, &mut unused).unwrap();
        (identity, unused.0)
    }

    fn flags() -> IdentityFlags {
        let [tls_cert, tls_key] = ["tls.crt", "tls.key"].map(PathBuf::from);
        IdentityFlags { state_dir: Some("s".into()), jwks: None, tls_cert, tls_key }
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
    fn half_an_external_authority_is_an_error() {
        let whole = IdentityEnv {
            external_ca: Some("true".into()),
            ca_address: Some("ca.example:443".into()),
            ca_root: Some("/root.pem".into()),
            ..IdentityEnv::default()
        };
        assert_eq!(identity(&whole).0.external.unwrap().address, "ca.example:443");
        let refused = |env: &IdentityEnv| Identity::new(flags(), env, &mut Unused::default()).unwrap_err().to_string();
        assert!(refused(&IdentityEnv { ca_address: None, ..whole.clone() }).contains("CA_ADDR"));
        assert!(refused(&IdentityEnv { ca_root: None, ..whole.clone() }).contains("CA_ROOT_CA"));
        assert!(refused(&IdentityEnv { ca_address: Some("ca".into()), ..whole.clone() }).contains("ca.example:443"));
        assert_eq!(identity(&IdentityEnv { external_ca: None, ..whole }).0.external, None);
    }

    #[test]
    fn another_provider_of_the_serving_certificate_is_said_to_be_none() {
        let of = |text: &str| identity(&IdentityEnv { cert_provider: Some(text.into()), ..IdentityEnv::default() }).1;
        assert!(of("istiod").is_empty());
        assert!(of("kubernetes")[0].contains("istiod"));
    }

    #[test]
    fn a_signer_of_the_cluster_has_a_name() {
        let env = IdentityEnv {
            external_ca: Some("ISTIOD_RA_KUBERNETES_API".into()),
            signer: Some("a.example/mesh".into()),
            cert_provider: Some("k8s.io/a.example/server".into()),
            ..IdentityEnv::default()
        };
        let signer = identity(&env).0.signer.unwrap();
        assert_eq!((&*signer.signer, signer.serving.as_deref()), ("a.example/mesh", Some("a.example/server")));
        let refused = |env: &IdentityEnv| Identity::new(flags(), env, &mut Unused::default()).unwrap_err().to_string();
        assert!(refused(&IdentityEnv { signer: None, ..env.clone() }).contains("K8S_SIGNER"));
        assert!(refused(&IdentityEnv { external_ca: None, ..env }).contains("EXTERNAL_CA=ISTIOD_RA_KUBERNETES_API"));
    }

    #[test]
    fn strictness_is_a_word() {
        let of = |text: &str| identity(&IdentityEnv { xds_identity: Some(text.into()), ..IdentityEnv::default() });
        assert!(of("strict").0.strict && !of("compat").0.strict && !identity(&IdentityEnv::default()).0.strict);
        assert_eq!(of("very").1.len(), 1);
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
