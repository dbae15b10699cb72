//! Finds the name that a misspelt one was probably meant to be.

/// The most similar name, if it is similar enough.
pub(crate) fn most_similar<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    // Longer names are not compared: the cost grows with the square of the length.
    if name.len() > 64 {
        return None;
    }
    let allowed = 1 + name.len() / 5;
    let near = known.iter().map(|candidate| (distance(&plain(name), &plain(candidate)), *candidate));
    near.filter(|(distance, _)| *distance <= allowed).min_by_key(|(distance, _)| *distance).map(|(_, name)| name)
}

/// Ignores case and underscores.
fn plain(name: &str) -> Vec<char> {
    name.chars().filter(|c| *c != '_').map(|c| c.to_ascii_lowercase()).collect()
}

/// The Levenshtein distance.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut row = (0..=b.len()).collect::<Vec<_>>();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, expected: Option<&str>) {
        assert_eq!(most_similar(name, &["timeout", "retries", "corsPolicy", "match"]), expected, "{name}");
    }

    #[test]
    fn small_slips_are_understood() {
        check("timout", Some("timeout"));
        check("Timeout", Some("timeout"));
        check("retry", None);
        check("retrys", Some("retries"));
        check("cors_polcy", Some("corsPolicy"));
        check("matches", Some("match"));
        check("hosts", None);
        check("", None);
    }
}
