//! The nearest right spelling of a word that is wrong in the text of a quota.

use super::Algorithm;

/// Returns the candidate that `word` is most likely to mean: the one with the fewest different letters, or
/// the only one that contains the word. The case of the letters and `_` for `-` make no difference.
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

/// Returns the right spelling of an algorithm with its parameter, such as `token-bucket(5)`.
pub(super) fn nearest_algorithm(word: &str) -> Option<String> {
    let (name, rest) = word.split_once('(').unwrap_or((word, ""));
    let names: Vec<_> = Algorithm::EACH.iter().map(|algorithm| algorithm.name()).collect();
    let name = nearest(name, &names)?;
    let has_parameter = Algorithm::EACH
        .iter()
        .any(|algorithm| algorithm.name() == name && algorithm.to_string() != name);
    let digits = rest.trim_end_matches(')');
    Some(match has_parameter {
        false => name.to_owned(),
        true if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            format!("{name}({digits})")
        }
        true => format!("{name}(NUMBER)"),
    })
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
