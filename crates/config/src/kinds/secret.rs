//! Secret: byte strings by key, which are never printed, and zeroized on drop.

use std::collections::BTreeMap;
use std::fmt;

use data_encoding::BASE64;
use serde::{Deserialize, Deserializer, de};
use zeroize::{Zeroize, Zeroizing};

#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "Raw")]
pub struct Secret {
    pub type_: String,
    pub data: BTreeMap<String, Zeroizing<Vec<u8>>>,
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dots = self.data.keys().map(|key| (key, "...")).collect::<BTreeMap<_, _>>();
        f.debug_struct("Secret").field("type_", &self.type_).field("data", &dots).finish()
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Raw {
    r#type: Option<String>,
    data: BTreeMap<String, Base64>,
    string_data: BTreeMap<String, String>,
}

impl From<Raw> for Secret {
    fn from(raw: Raw) -> Secret {
        let encoded = raw.data.into_iter().map(|(key, Base64(value))| (key, value));
        let plain = raw.string_data.into_iter().map(|(key, value)| (key, Zeroizing::new(value.into_bytes())));
        Secret { type_: raw.r#type.unwrap_or_else(|| "Opaque".to_owned()), data: encoded.chain(plain).collect() }
    }
}

struct Base64(Zeroizing<Vec<u8>>);

impl<'de> Deserialize<'de> for Base64 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Base64, D::Error> {
        let mut text = String::deserialize(deserializer)?;
        text.retain(|c| c != '\n' && c != '\r');
        // The value is secret: the error must not quote it.
        let decoded = BASE64.decode(text.as_bytes()).map(|value| Base64(Zeroizing::new(value))).map_err(|_| {
            de::Error::custom("the value is not base64; encode it, or write it as it is under stringData")
        });
        text.zeroize();
        decoded
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::kubernetes_example::{kubernetes, kubernetes_parse_error};

    #[test]
    fn both_spellings_are_merged_and_plain_texts_win() {
        let secret: Secret = kubernetes(r#"{data: {a: "aGVs\nbG8=", b: ''}, stringData: {b: c}}"#);
        let data = [("a", "hello"), ("b", "c")].map(|(key, value)| (key.to_owned(), value.as_bytes().to_vec().into()));
        let data = BTreeMap::from(data);
        assert_eq!(secret, Secret { type_: "Opaque".into(), data });
    }

    #[test]
    fn nothing_prints_a_value() {
        let secret: Secret = kubernetes("{type: kubernetes.io/tls, data: {a: aGVsbG8=}}");
        assert_eq!(format!("{secret:?}"), r#"Secret { type_: "kubernetes.io/tls", data: {"a": "..."} }"#);
        let rejected = kubernetes_parse_error::<Secret>("data: {a: 'hunter 2'}");
        assert_eq!(rejected, "data.a: the value is not base64; encode it, or write it as it is under stringData");
    }
}
