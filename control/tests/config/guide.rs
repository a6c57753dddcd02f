//! The guide has the examples as they are, and every field.

use plimsoll_control::Config;

const GUIDE: &str = include_str!("../../docs/config.md");

#[test]
fn the_guide_has_the_examples_as_they_are() {
    for example in [
        include_str!("../../docs/config/limits.toml"),
        include_str!("../../docs/config/limits.yaml"),
        include_str!("../../docs/config/limits.json"),
    ] {
        assert!(GUIDE.contains(example), "{example}");
    }
}

#[test]
fn the_guide_has_each_field_of_the_schema() {
    let schema = serde_json::from_str(Config::JSON_SCHEMA).expect("JSON");
    let mut names = Vec::new();
    collect(&schema, &mut names);
    assert!(names.len() > 60, "{names:?}");
    let missing = |name: &&String| {
        !["| `", ", `", "`\"", "{ ", "of `", "and `"]
            .iter()
            .any(|before| GUIDE.contains(&format!("{before}{name}")))
    };
    let missing: Vec<_> = names.iter().filter(missing).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// Collects the names of fields, and the names that stand for values.
fn collect(schema: &serde_json::Value, names: &mut Vec<String>) {
    let children: Vec<_> = match schema {
        serde_json::Value::Object(fields) => fields.iter().collect(),
        serde_json::Value::Array(items) => return items.iter().for_each(|it| collect(it, names)),
        _ => return,
    };
    for (name, value) in children {
        match (name.as_str(), value) {
            ("properties", serde_json::Value::Object(fields)) => {
                names.extend(fields.keys().cloned());
            }
            ("const", serde_json::Value::String(text)) => names.push(text.clone()),
            _ => {}
        }
        collect(value, names);
    }
}
