//! Finds the name that a misspelt one was probably meant to be.

/// The most similar name, if it is similar enough.
pub fn most_similar<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
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

/// Insertions, deletions, replacements and exchanges of neighbours.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut rows = vec![(0..=b.len()).collect::<Vec<_>>()];
    for i in 1..=a.len() {
        let above = &rows[i - 1];
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = above[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = replaced.min(above[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
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
        check("mathc", Some("match"));
        check("hosts", None);
        check("", None);
    }
}
