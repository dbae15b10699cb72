//! String matches of VirtualServices.

use super::one_of::oneof_message;

oneof_message! {
    #[derive(Hash)]
    pub enum StringMatch {
        /// Written as `{}`. For a header it matches presence.
        Any,
        Exact(String) = "exact",
        Prefix(String) = "prefix",
        /// RE2; the whole value must match.
        Regex(String) = "regex",
    }
}

#[cfg(test)]
mod tests {
    use super::StringMatch;

    fn read(json: &str) -> Result<StringMatch, serde_json::Error> {
        serde_json::from_str(json)
    }

    #[test]
    fn each_form() {
        assert_eq!(read("{}").unwrap(), StringMatch::Any);
        assert_eq!(read(r#"{"exact":"a"}"#).unwrap(), StringMatch::Exact("a".into()));
        assert_eq!(read(r#"{"prefix":"/a"}"#).unwrap(), StringMatch::Prefix("/a".into()));
        assert_eq!(read(r#"{"regex":"a.*"}"#).unwrap(), StringMatch::Regex("a.*".into()));
    }

    #[test]
    fn rejects_two_forms_at_once() {
        let error = read(r#"{"exact":"a","regex":"b"}"#).unwrap_err().to_string();
        assert!(error.contains("exact and regex exclude each other"), "{error}");
    }
}
