//! The text of a configuration as a tree of values that know their place, the same for all formats, and the
//! deserializer that reads it.

mod at;
mod deserializer;
mod json;
mod mistake;
mod node;
mod toml;
mod yaml;

pub(super) use self::{
    at::{At, Entries},
    mistake::Mistake,
    node::Node,
};

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;
    use crate::config::{Format, spec::FileSpec};

    #[test]
    fn the_examples_say_the_same_in_each_format() {
        let read = |text: &str, format| {
            // The test does not set environment variables.
            let text = text.replace("${REDIS_URL}", "redis://${CARGO_PKG_NAME}/");
            FileSpec::deserialize(&Node::parse(&text, format).unwrap()).unwrap()
        };
        let toml = read(include_str!("../../../docs/config/limits.toml"), Format::Toml);
        assert_eq!(toml.policies.0.len(), 8);
        assert_eq!(read(include_str!("../../../docs/config/limits.yaml"), Format::Yaml), toml);
        assert_eq!(read(include_str!("../../../docs/config/limits.json"), Format::Json), toml);
    }

    #[test]
    fn a_mistake_has_the_same_place_in_each_format() {
        for (format, text) in [
            (Format::Toml, "policies.a = '1/s'\n[[rules]]\nkey = 'peer_ip'\npolciy = 'a'\n"),
            (Format::Yaml, "policies: {a: 1/s}\nrules:\n- key: peer_ip\n  polciy: a\n"),
            (
                Format::Json,
                "{\"policies\": {\"a\": \"1/s\"}, \"rules\": [\n{ \"polciy\": \"a\" }]}",
            ),
        ] {
            let node = Node::parse(text, format).unwrap();
            let mistake = FileSpec::deserialize(&node).unwrap_err();
            let found = text[mistake.span.unwrap()].trim_matches('"');
            assert_eq!((found, mistake.nearest.as_deref()), ("polciy", Some("policy")), "{format}");
        }
    }
}
