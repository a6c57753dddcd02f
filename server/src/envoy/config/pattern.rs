//! Patterns with `*`.

/// A pattern, in which each `*` stands for any number of characters.
#[derive(Debug)]
pub(super) struct Pattern(Box<[Box<str>]>);

impl Pattern {
    /// Returns the [pattern](Pattern) of a text, or `None` if it has no `*`.
    pub(super) fn of(text: &str) -> Option<Self> {
        text.contains('*').then(|| Self(text.split('*').map(Box::from).collect()))
    }

    /// Returns whether the [pattern](Pattern) matches a text. It takes time linear in the text.
    pub(super) fn matches(&self, text: &str) -> bool {
        let [first, middle @ .., last] = &*self.0 else { return false };
        let Some(rest) = text.strip_prefix(&**first) else { return false };
        let Some(mut rest) = rest.strip_suffix(&**last) else { return false };
        // Each literal is taken at its first place, which leaves the most for those behind it.
        for literal in middle {
            let Some(at) = rest.find(&**literal) else { return false };
            rest = &rest[at + literal.len()..];
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_star_stands_for_any_number_of_characters() {
        for (pattern, text, expected) in [
            ("ab*", "ab", true),
            ("ab*", "abc", true),
            ("ab*", "a", false),
            ("*", "", true),
            ("a*b", "ab", true),
            ("a*b", "axxb", true),
            ("a*b", "axxbc", false),
            ("aa*aa", "aaa", false),
            ("aa*aa", "aaaa", true),
            ("a*b*c", "a-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("a*b*b", "ab", false),
            ("**", "x", true),
            ("é*é", "éé", true),
        ] {
            let found = Pattern::of(pattern).unwrap().matches(text);
            assert_eq!(found, expected, "{pattern} {text}");
        }
        assert!(Pattern::of("plain").is_none());
    }
}
