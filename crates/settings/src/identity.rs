//! The flags and variables of identity: the CA, accepted credentials, and what an identity allows.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use ca::{KeyType, Lifetimes};
use ipnet::IpNet;
use server::settings::{ExternalCaSettings, IdentitySettings, SignerSettings};

use super::IgnoredValues;
use crate::args::{IdentityEnv, boolean};

/// The flags of identity.
pub(super) struct IdentityFlags {
    pub(super) state_dir: Option<PathBuf>,
    pub(super) jwks: Option<PathBuf>,
    pub(super) tls_cert: PathBuf,
    pub(super) tls_key: PathBuf,
}

const HOUR: Duration = Duration::from_secs(3600);

pub(super) fn settings(
    flags: IdentityFlags,
    env: &IdentityEnv,
    ignored: &mut IgnoredValues,
) -> Result<IdentitySettings> {
    let lifetimes = Lifetimes::default();
    let IdentityFlags { state_dir, jwks, tls_cert, tls_key } = flags;
    let signer = signer_settings(env, ignored)?;
    let external = signer.is_none() && ignored.boolean("EXTERNAL_CA", &env.external_ca);
    Ok(IdentitySettings {
        signer,
        external: external.then(|| external_settings(env, tls_cert, tls_key)).transpose()?,
        strict: ignored.read("MELTEMI_XDS_IDENTITY", &env.xds_identity, false, |text| match text {
            "compat" => Some(false),
            "strict" => Some(true),
            _ => None,
        }),
        state: state_folder(state_dir, env),
        plugged: env.root_ca_dir.as_deref().unwrap_or("./etc/cacerts").into(),
        key: key_type(env, ignored),
        root_lifetime: ignored.duration("CITADEL_SELF_SIGNED_CA_CERT_TTL", &env.root_ttl, 87_600 * HOUR),
        grace_percent: ignored.number("CITADEL_SELF_SIGNED_ROOT_CERT_GRACE_PERIOD_PERCENTILE", &env.root_grace, 20),
        lifetimes: Lifetimes {
            default: ignored.duration("DEFAULT_WORKLOAD_CERT_TTL", &env.default_ttl, lifetimes.default),
            max: ignored.duration("MAX_WORKLOAD_CERT_TTL", &env.max_ttl, lifetimes.max),
            fixed: Some(ignored.duration("PILOT_WORKLOAD_CERT_TTL", &env.workload_ttl, Duration::ZERO))
                .filter(|fixed| !fixed.is_zero()),
        },
        audiences: list(&env.token_audiences, "istio-ca"),
        jwks,
        trusted_gateways: networks(env, ignored),
        hosts: list(&env.custom_host, ""),
        authenticate: ignored.read("XDS_AUTH", &env.xds_auth, true, |text| boolean(text).ok()),
        check: ignored.read("PILOT_ENABLE_XDS_IDENTITY_CHECK", &env.identity_check, true, |text| boolean(text).ok()),
        workload_secrets: ignored.boolean("MELTEMI_WORKLOAD_SECRETS", &env.workload_secrets),
    })
}

/// istiod's values.
const BY_API_SERVER: &str = "ISTIOD_RA_KUBERNETES_API";
const SIGNER: &str = "k8s.io/";

fn signer_settings(env: &IdentityEnv, ignored: &mut IgnoredValues) -> Result<Option<SignerSettings>> {
    // Otherwise the serving certificate is signed here, or read from files with an external CA.
    let provider = ignored.read("PILOT_CERT_PROVIDER", &env.cert_provider, "istiod".to_owned(), |text| {
        (text == "istiod" || text.len() > SIGNER.len() && text.starts_with(SIGNER)).then(|| text.to_owned())
    });
    let serving = provider.strip_prefix(SIGNER).map(str::to_owned);
    if env.external_ca.as_deref() != Some(BY_API_SERVER) {
        if serving.is_some() {
            bail!("PILOT_CERT_PROVIDER={provider} needs EXTERNAL_CA={BY_API_SERVER}: proxies trust one CA");
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
    Ok(Some(SignerSettings { signer, domain, serving, roots: "./etc/external-ca-cert/root-cert.pem".into() }))
}

/// An incomplete configuration would leave a mesh without certificates, so it is an error.
fn external_settings(env: &IdentityEnv, certificate: PathBuf, key: PathBuf) -> Result<ExternalCaSettings> {
    let Some(address) = env.ca_address.clone() else {
        bail!("EXTERNAL_CA=true needs CA_ADDR, the address of the CA as HOST:PORT");
    };
    let roots = env.ca_root.clone().map(PathBuf::from);
    if address.rsplit_once(':').is_none_or(|(host, port)| host.is_empty() || port.parse::<u16>().is_err()) {
        bail!("CA_ADDR={address:?} is not an address; write it like ca.example:443");
    }
    Ok(ExternalCaSettings { address, name: env.ca_name.clone(), roots, certificate, key })
}

/// --stateDir, else the user's state folder of the XDG convention.
pub fn state_folder(flag: Option<PathBuf>, env: &IdentityEnv) -> Option<PathBuf> {
    let home = || env.home.as_ref().map(|home| PathBuf::from(home).join(".local/state"));
    let default = || env.state_home.as_ref().map(PathBuf::from).or_else(home).map(|state| state.join("meltemi"));
    flag.or_else(default)
}

/// istiod's own variable for the size of RSA keys counts where ours is not set.
fn key_type(env: &IdentityEnv, ignored: &mut IgnoredValues) -> KeyType {
    let rsa = match env.rsa_key_size.as_deref() {
        Some("2048") => KeyType::Rsa2048,
        Some("4096") => KeyType::Rsa4096,
        _ => KeyType::default(),
    };
    ignored.read("CITADEL_SELF_SIGNED_CA_KEY_TYPE", &env.key_type, rsa, |text| text.parse().ok())
}

fn networks(env: &IdentityEnv, ignored: &mut IgnoredValues) -> Vec<IpNet> {
    ignored.read("TRUSTED_GATEWAY_CIDR", &env.trusted_gateways, Vec::new(), |text| {
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

    fn identity(env: &IdentityEnv) -> (IdentitySettings, Vec<String>) {
        let mut ignored = IgnoredValues::default();
        let identity = super::settings(flags(), env, &mut ignored).unwrap();
        (identity, ignored.0)
    }

    fn flags() -> IdentityFlags {
        let [tls_cert, tls_key] = ["tls.crt", "tls.key"].map(PathBuf::from);
        IdentityFlags { state_dir: Some("s".into()), jwks: None, tls_cert, tls_key }
    }

    #[test]
    fn defaults_are_istiods_except_the_key_type() {
        let (identity, ignored) = identity(&IdentityEnv::default());
        assert!(ignored.is_empty() && identity.authenticate && identity.check);
        assert_eq!(identity.key, KeyType::P256);
        assert_eq!((identity.lifetimes, identity.root_lifetime), (Lifetimes::default(), 87_600 * HOUR));
        assert_eq!(identity.audiences, ["istio-ca"]);
    }

    #[test]
    fn the_key_type_by_either_variable() {
        let env = IdentityEnv { rsa_key_size: Some("4096".into()), ..IdentityEnv::default() };
        assert_eq!(identity(&env).0.key, KeyType::Rsa4096);
        let env = IdentityEnv { key_type: Some("P-384".into()), ..env };
        assert_eq!(identity(&env).0.key, KeyType::P384);
        let env = IdentityEnv { key_type: Some("DSA".into()), ..IdentityEnv::default() };
        assert_eq!(identity(&env).1.len(), 1);
    }

    #[test]
    fn an_incomplete_external_ca_is_an_error() {
        let whole = IdentityEnv {
            external_ca: Some("true".into()),
            ca_address: Some("ca.example:443".into()),
            ca_root: Some("/root.pem".into()),
            ..IdentityEnv::default()
        };
        assert_eq!(identity(&whole).0.external.unwrap().address, "ca.example:443");
        let error =
            |env: &IdentityEnv| super::settings(flags(), env, &mut IgnoredValues::default()).unwrap_err().to_string();
        assert!(error(&IdentityEnv { ca_address: None, ..whole.clone() }).contains("CA_ADDR"));
        assert_eq!(identity(&IdentityEnv { ca_root: None, ..whole.clone() }).0.external.unwrap().roots, None);
        assert!(error(&IdentityEnv { ca_address: Some("ca".into()), ..whole.clone() }).contains("ca.example:443"));
        assert_eq!(identity(&IdentityEnv { external_ca: None, ..whole }).0.external, None);
    }

    #[test]
    fn an_unknown_provider_of_the_serving_certificate_is_reported() {
        let of = |text: &str| identity(&IdentityEnv { cert_provider: Some(text.into()), ..IdentityEnv::default() }).1;
        assert!(of("istiod").is_empty());
        assert!(of("kubernetes")[0].contains("istiod"));
    }

    #[test]
    fn a_kubernetes_signer_has_a_name() {
        let env = IdentityEnv {
            external_ca: Some("ISTIOD_RA_KUBERNETES_API".into()),
            signer: Some("a.example/mesh".into()),
            cert_provider: Some("k8s.io/a.example/server".into()),
            ..IdentityEnv::default()
        };
        let signer = identity(&env).0.signer.unwrap();
        assert_eq!((&*signer.signer, signer.serving.as_deref()), ("a.example/mesh", Some("a.example/server")));
        let error =
            |env: &IdentityEnv| super::settings(flags(), env, &mut IgnoredValues::default()).unwrap_err().to_string();
        assert!(error(&IdentityEnv { signer: None, ..env.clone() }).contains("K8S_SIGNER"));
        assert!(error(&IdentityEnv { external_ca: None, ..env }).contains("EXTERNAL_CA=ISTIOD_RA_KUBERNETES_API"));
    }

    #[test]
    fn strict_identity_is_a_value() {
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
        let (wrong, ignored) = identity(&env);
        assert!(wrong.trusted_gateways.is_empty() && ignored.len() == 1);
    }
}
