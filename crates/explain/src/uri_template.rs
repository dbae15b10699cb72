//! Paths against Envoy's URI templates: `*` is one segment, `**` the rest.

use crate::truth::Truth;

pub(crate) fn matches(template: &str, path: &str) -> Truth {
    let template: Vec<&str> = template.split('/').collect();
    let path: Vec<&str> = path.split('/').collect();
    fits(&template, &path).into()
}

fn fits(template: &[&str], path: &[&str]) -> bool {
    match (template, path) {
        ([], []) => true,
        (["{**}" | "**", rest @ ..], path) => (1..=path.len()).any(|taken| fits(rest, &path[taken..])),
        (["{*}" | "*", rest @ ..], [segment, path @ ..]) => !segment.is_empty() && fits(rest, path),
        ([literal, rest @ ..], [segment, path @ ..]) => literal == segment && fits(rest, path),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_segment_and_the_rest() {
        let check = |template, path, want: bool| assert_eq!(matches(template, path), want.into(), "{template} {path}");
        check("/users/*/cart", "/users/7/cart", true);
        check("/users/*/cart", "/users/7/8/cart", false);
        check("/users/*/cart", "/users//cart", false);
        check("/files/**", "/files/a/b", true);
        check("/files/**", "/files", false);
    }
}
