//! The nearest right spelling of a word that is wrong in the text of a quota.

use super::Algorithm;

/// Returns the candidate that `word` is most likely to mean: the candidate with the fewest different letters,
/// or the only candidate that contains the word. The case of the letters and `_` for `-` make no difference.
pub(super) fn nearest<'c>(word: &str, candidates: &[&'c str]) -> Option<&'c str> {
    let word = word.to_ascii_lowercase().replace('_', "-");
    let near = |candidate: &&&str| {
        let changes = distance(&word, candidate);
        changes < candidate.len() && changes <= (candidate.len() / 3).max(1)
    };
    let by_letters = candidates.iter().filter(near).min_by_key(|other| distance(&word, other));
    let mut containing = candidates.iter().filter(|other| word.len() > 2 && other.contains(&word));
    let only = containing.next().filter(|_| containing.next().is_none());
    by_letters.or(only).copied()
}

/// Returns why a word is not an algorithm with its parameter.
pub(super) fn why_not(word: &str) -> &'static str {
    let (name, rest) = word.split_once('(').unwrap_or((word, ""));
    let is_known = has_parameter(name) == Some(true);
    match rest.strip_suffix(')').filter(|_| is_known) {
        Some(digits) if is_number(digits) => "has a number that is too large",
        _ if is_known && rest.is_empty() => "needs a number in parentheses",
        _ => "is not an algorithm",
    }
}

/// Returns the right spelling of an algorithm with its parameter, such as `token-bucket(5)`. There is none if the
/// parameter is missing.
pub(super) fn nearest_algorithm(word: &str) -> Option<String> {
    let (name, rest) = word.split_once('(').unwrap_or((word, ""));
    let names: Vec<_> = Algorithm::EACH.iter().map(|algorithm| algorithm.name()).collect();
    let name = nearest(name, &names)?;
    let digits = rest.trim_end_matches(')');
    match has_parameter(name) {
        Some(true) => is_number(digits).then(|| format!("{name}({digits})")),
        _ => Some(name.to_owned()),
    }
}

/// Returns whether the algorithm of a name has a parameter, or `None` if there is no such name.
fn has_parameter(name: &str) -> Option<bool> {
    let algorithm = Algorithm::EACH.iter().find(|algorithm| algorithm.name() == name)?;
    Some(algorithm.to_string() != name)
}

fn is_number(digits: &str) -> bool {
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns the number of bytes to insert, remove or replace to turn one text into the other (Levenshtein).
fn distance(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (index, byte) in one.bytes().enumerate() {
        let mut diagonal = index;
        row[0] = index + 1;
        for (column, letter) in other.bytes().enumerate() {
            let replaced = diagonal + usize::from(byte != letter);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use plimsoll_testing::seed;
    use proptest::prelude::*;

    use super::*;

    const NAMES: &[&str] =
        &["sliding-log", "sliding-buckets", "sliding-counter", "token-bucket", "fixed-window"];

    /// Returns the distance by its definition: the shortest of all ways.
    fn shortest(one: &[u8], other: &[u8]) -> usize {
        let (([first, one_rest @ ..], [second, other_rest @ ..]), true) =
            ((one, other), !one.is_empty() && !other.is_empty())
        else {
            return one.len() + other.len();
        };
        let replaced = shortest(one_rest, other_rest) + usize::from(first != second);
        replaced.min(1 + shortest(one_rest, other)).min(1 + shortest(one, other_rest))
    }

    #[test]
    fn a_distance_is_the_number_of_changes_of_the_shortest_way() {
        let name = "a_distance_is_the_number_of_changes_of_the_shortest_way";
        let words = ("[a-c]{0,5}", "[a-c]{0,5}");
        seed::property(name, ProptestConfig::with_cases(500), words, |(one, other)| {
            prop_assert_eq!(distance(&one, &other), shortest(one.as_bytes(), other.as_bytes()));
            Ok(())
        });
    }

    #[test]
    fn a_name_is_found_if_at_most_a_third_of_its_letters_are_wrong() {
        assert_eq!(nearest("slid", &["sliding"]), Some("sliding"), "a part of one name alone");
        assert_eq!(nearest("sliding", NAMES), None, "a part of several names");
        assert_eq!(nearest("xxxing-xxx", &["sliding-log"]), None);
        for name in NAMES {
            for wrong in 0..name.len() {
                let word = format!("{}{}", "?".repeat(wrong), &name[wrong..]);
                let expected = (wrong <= name.len() / 3).then_some(*name);
                assert_eq!(nearest(&word, NAMES), expected, "{word}");
            }
        }
    }

    #[test]
    fn short_words_are_found_only_if_something_of_them_is_right() {
        let units = ["s", "ms", "min", "hour"];
        for (word, unit) in
            [("S", Some("s")), ("mz", Some("ms")), ("mim", Some("min")), ("x", None)]
        {
            assert_eq!(nearest(word, &units), unit, "{word}");
        }
        assert_eq!(nearest("ou", &units), None, "two letters of a word are too few");
        assert_eq!(nearest("our", &units), Some("hour"));
    }

    #[test]
    fn the_parameter_of_an_algorithm_is_kept_if_it_is_a_number() {
        for (word, right) in [
            ("Token_Bucket(5)", "token-bucket(5)"),
            ("token-buckt(17", "token-bucket(17)"),
            ("sliding-log(5)", "sliding-log"),
            ("fixed", "fixed-window"),
        ] {
            assert_eq!(nearest_algorithm(word).as_deref(), Some(right), "{word}");
        }
        for word in ["gcra(5)", "token-bucket", "token-bucket()", "token-bucket(5x)"] {
            assert_eq!(nearest_algorithm(word), None, "{word}");
        }
    }
}
