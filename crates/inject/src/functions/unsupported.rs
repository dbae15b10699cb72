//! Functions of sprig that read the clock, the network or randomness, or make keys: two replicas must answer a pod alike. A template that
//! names one loads, and fails for the pods that reach the call.

use super::arguments::{ANY, variadic};
use crate::template::Function;

pub(super) fn lookup(name: &str) -> Option<&'static Function> {
    FUNCTIONS.iter().find(|function| function.name == name)
}

macro_rules! unsupported {
    ($($name:literal)*) => {
        static FUNCTIONS: &[Function] = &[$(
            variadic($name, &[], ANY, |_, _| Err(concat!("the function ", $name, " is not supported in injection templates").into())),
        )*];
    };
}

unsupported! {
    "now" "ago" "date" "dateInZone" "date_in_zone" "dateModify" "date_modify" "mustDateModify" "must_date_modify" "duration" "durationRound"
    "htmlDate" "htmlDateInZone" "toDate" "mustToDate" "unixEpoch"
    "randAlpha" "randAlphaNum" "randAscii" "randNumeric" "randBytes" "randInt" "shuffle" "uuidv4"
    "genPrivateKey" "genCA" "genCAWithKey" "genSelfSignedCert" "genSelfSignedCertWithKey" "genSignedCert" "genSignedCertWithKey"
    "buildCustomCert" "derivePassword" "bcrypt" "htpasswd" "encryptAES" "decryptAES"
    "getHostByName" "expandenv" "urlParse" "urlJoin" "semver" "adler32sum" "abbrevboth" "swapcase"
    "osBase" "osClean" "osDir" "osExt" "osIsAbs" "hello"
}
