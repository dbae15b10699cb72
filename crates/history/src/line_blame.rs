//! Which version of a text brought each line of the newest one, as `git blame` has it.

use std::collections::HashMap;

/// Texts whose numbers of lines multiply to more are compared piece by piece, between lines that are unique in both.
const MAX_CELLS: usize = 1 << 20;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlamedLine<'a> {
    pub line: &'a str,
    /// The index of the version that brought it.
    pub version: usize,
}

/// `versions`: the newest is the last.
pub fn blame_lines<'a>(versions: &[&'a str]) -> Vec<BlamedLine<'a>> {
    let mut blamed: Vec<BlamedLine<'a>> = Vec::new();
    for (version, text) in versions.iter().enumerate() {
        let new: Vec<&str> = text.lines().collect();
        let old: Vec<&str> = blamed.iter().map(|it| it.line).collect();
        let mut next: Vec<BlamedLine<'a>> = text.lines().map(|line| BlamedLine { line, version }).collect();
        let mut common = CommonLines::default();
        common.find(Piece { lines: &old, first: 0 }, Piece { lines: &new, first: 0 });
        for [before, after] in common.0 {
            next[after].version = blamed[before].version;
        }
        blamed = next;
    }
    blamed
}

/// Consecutive lines of a text.
#[derive(Clone, Copy)]
struct Piece<'a> {
    lines: &'a [&'a str],
    first: usize,
}

impl<'a> Piece<'a> {
    fn part(self, from: usize, to: usize) -> Piece<'a> {
        Piece { lines: &self.lines[from..to], first: self.first + from }
    }
}

/// The numbers of equal lines of two texts.
#[derive(Default)]
struct CommonLines(Vec<[usize; 2]>);

impl CommonLines {
    fn find(&mut self, old: Piece<'_>, new: Piece<'_>) {
        let start = old.lines.iter().zip(new.lines).take_while(|(one, two)| one == two).count();
        self.0.extend((0..start).map(|at| [old.first + at, new.first + at]));
        let (old, new) = (old.part(start, old.lines.len()), new.part(start, new.lines.len()));
        let same = old.lines.iter().rev().zip(new.lines.iter().rev()).take_while(|(one, two)| one == two).count();
        let (old_end, new_end) = (old.lines.len() - same, new.lines.len() - same);
        self.0.extend((0..same).map(|at| [old.first + old_end + at, new.first + new_end + at]));
        let (old, new) = (old.part(0, old_end), new.part(0, new_end));
        if old.lines.len() * new.lines.len() <= MAX_CELLS {
            self.find_longest(old, new);
        } else {
            self.find_between_unique(old, new);
        }
    }

    /// The longest common subsequence.
    fn find_longest(&mut self, old: Piece<'_>, new: Piece<'_>) {
        let (rows, columns) = (old.lines.len(), new.lines.len());
        // The number of common lines from a line of each text on.
        let mut lengths = vec![0_u32; (rows + 1) * (columns + 1)];
        let cell = |row: usize, column: usize| row * (columns + 1) + column;
        for row in (0..rows).rev() {
            for column in (0..columns).rev() {
                lengths[cell(row, column)] = if old.lines[row] == new.lines[column] {
                    lengths[cell(row + 1, column + 1)] + 1
                } else {
                    lengths[cell(row + 1, column)].max(lengths[cell(row, column + 1)])
                };
            }
        }
        let (mut row, mut column) = (0, 0);
        while row < rows && column < columns {
            if old.lines[row] == new.lines[column] {
                self.0.push([old.first + row, new.first + column]);
                (row, column) = (row + 1, column + 1);
            } else if lengths[cell(row + 1, column)] >= lengths[cell(row, column + 1)] {
                row += 1;
            } else {
                column += 1;
            }
        }
    }

    /// Lines without a unique one near them count as new.
    fn find_between_unique(&mut self, old: Piece<'_>, new: Piece<'_>) {
        let anchors = longest_ascent(&unique_lines(old.lines, new.lines));
        if anchors.is_empty() {
            return;
        }
        let (mut row, mut column) = (0, 0);
        for [before, after] in anchors {
            self.find(old.part(row, before), new.part(column, after));
            self.0.push([old.first + before, new.first + after]);
            (row, column) = (before + 1, after + 1);
        }
        self.find(old.part(row, old.lines.len()), new.part(column, new.lines.len()));
    }
}

/// Lines that both texts have once, in the order of the second.
fn unique_lines(old: &[&str], new: &[&str]) -> Vec<[usize; 2]> {
    let once = |lines: &[&str]| {
        let mut places: HashMap<String, Option<usize>> = HashMap::new();
        for (at, line) in lines.iter().enumerate() {
            places.entry((*line).to_owned()).and_modify(|place| *place = None).or_insert(Some(at));
        }
        places
    };
    let (olds, news) = (once(old), once(new));
    let in_both = |(after, line): (usize, &&str)| {
        news.get(*line).copied().flatten()?;
        Some([olds.get(*line).copied().flatten()?, after])
    };
    new.iter().enumerate().filter_map(in_both).collect()
}

/// The longest part in which the first numbers ascend.
fn longest_ascent(pairs: &[[usize; 2]]) -> Vec<[usize; 2]> {
    // The pair at the end of the best ascent of each length, and before each pair the one that it follows.
    let (mut ends, mut previous): (Vec<usize>, Vec<Option<usize>>) = (Vec::new(), Vec::new());
    for (index, pair) in pairs.iter().enumerate() {
        let length = ends.partition_point(|end| pairs[*end][0] < pair[0]);
        previous.push(length.checked_sub(1).map(|before| ends[before]));
        match ends.get_mut(length) {
            Some(end) => *end = index,
            None => ends.push(index),
        }
    }
    let mut ascent: Vec<[usize; 2]> =
        std::iter::successors(ends.last().copied(), |index| previous[*index]).map(|index| pairs[index]).collect();
    ascent.reverse();
    ascent
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(versions: &[&str], expected: &str) {
        let texts: Vec<String> = versions.iter().map(|text| text.replace(' ', "\n")).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let found: Vec<String> = blame_lines(&texts).iter().map(|it| format!("{}{}", it.line, it.version)).collect();
        assert_eq!(found.join(" "), expected);
    }

    #[test]
    fn each_line_has_the_version_that_brought_it() {
        check(&["a b c"], "a0 b0 c0");
        check(&["a b c", "a x c"], "a0 x1 c0");
        check(&["a b c", "a b c d", "z a b c d"], "z2 a0 b0 c0 d1");
        check(&["a b c", "", "a b c"], "a2 b2 c2");
        check(&["{ a } { b }", "{ a } { x } { b }"], "{0 a0 }0 {0 x1 }1 {1 b0 }0");
        check(&["a b c d e", "c d", "a c d e"], "a2 c0 d0 e2");
        check(&[], "");
    }

    #[test]
    fn long_texts_are_compared_between_unique_lines() {
        let text = |changed: &[usize]| -> String {
            let line =
                |at: usize| if changed.contains(&at) { format!("new {at}\n}}\n") } else { format!("line {at}\n}}\n") };
            (0..3000).map(line).collect()
        };
        let (old, new) = (text(&[]), text(&[5, 1500, 2990]));
        let blamed = blame_lines(&[&old, &new]);
        let brought: Vec<&str> = blamed.iter().filter(|it| it.version == 1).map(|it| it.line).collect();
        assert_eq!(brought, ["new 5", "new 1500", "new 2990"]);
        assert_eq!(blamed.len(), 6000);
    }
}
