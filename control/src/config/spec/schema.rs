//! The JSON Schema of configurations, which is generated from the fields and their comments.

use std::{borrow::Cow, collections::BTreeMap, env, fs};

use schemars::{JsonSchema, Schema, SchemaGenerator, generate::SchemaSettings, json_schema};

use super::{
    FileSpec, HeaderText, HexSecret, PolicySpec, Route, Secret, Time, Within, file::PolicyFields,
};
use crate::config::document::{At, Entries};

/// Implements the schema of a text of a certain form.
macro_rules! text {
    ($($type:ident: $pattern:literal, $description:literal;)+) => {
        $(impl JsonSchema for $type {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({
                    "type": "string", "pattern": $pattern, "description": $description
                })
            }
        })+
    };
}

text! {
    Route: r"^([A-Z]+ )?/[^ ?#]*$", "A route: `/path`, or `METHOD /path`.";
    HeaderText: r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+$", "The name of a header.";
    Time: r"^([0-9]+ *[a-z]+ *)+$", "A time from `1ms` to `1h`, such as `50ms`.";
    Secret: r"", "A text, in which `${NAME}` stands for an environment variable.";
    HexSecret: r"^([0-9A-Fa-f]{32}|.*\$\{.+\}.*)$",
        "32 hexadecimal digits, for which `${NAME}` may stand.";
}

/// The treatment of a request while the store cannot answer.
#[derive(JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) enum OnFailureSchema {
    /// This process decides by itself.
    Local,
    /// The request passes.
    Allow,
    /// The request is rejected with status 503.
    Deny,
}

/// Implements the schema of a type that is written like another one.
macro_rules! like {
    ($($type:ident<T> = $other:ty;)+) => {
        $(impl<T: JsonSchema> JsonSchema for $type<T> {
            fn inline_schema() -> bool {
                <$other>::inline_schema()
            }

            fn schema_name() -> Cow<'static, str> {
                <$other>::schema_name()
            }

            fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                <$other>::json_schema(generator)
            }
        })+
    };
}

like! {
    At<T> = T;
    Entries<T> = BTreeMap<String, T>;
}

impl<const MIN: u32, const MAX: u32> JsonSchema for Within<MIN, MAX> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Within".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "integer", "minimum": MIN, "maximum": MAX })
    }
}

impl JsonSchema for PolicySpec {
    fn schema_name() -> Cow<'static, str> {
        "Policy".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A policy: its quota as a text, or a table with the quota.",
            "anyOf": [{ "type": "string" }, generator.subschema_for::<PolicyFields>()]
        })
    }
}

#[test]
fn the_schema_that_is_checked_in_is_current() {
    let mut settings = SchemaSettings::draft2020_12();
    settings.inline_subschemas = false;
    let schema = settings.into_generator().into_root_schema_for::<FileSpec>();
    let text = serde_json::to_string_pretty(&schema).expect("a schema is JSON") + "\n";
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/config/limits.schema.json");
    if env::var_os("PLIMSOLL_REWRITE").is_some() {
        fs::write(path, &text).expect("the schema is written");
    }
    let current = fs::read_to_string(path).unwrap_or_default();
    assert!(current == text, "run the test with PLIMSOLL_REWRITE=1 to write {path}");
}
