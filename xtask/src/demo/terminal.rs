//! Terminal sessions as an animated SVG: no script, no font of its own, a few kilobytes. One scene after the other fills the window; without
//! animation (a viewer that has none, or a reader who wants less of it) the last one is seen.

use std::fmt::Write;

/// Commands that are seen together, with what they printed.
pub(super) struct Scene {
    /// What is seen in it, in one line.
    pub(super) caption: &'static str,
    pub(super) commands: Vec<Shown>,
}

pub(super) struct Shown {
    pub(super) command: String,
    pub(super) output: String,
}

/// Characters of a line; longer ones are continued in the next.
const COLUMNS: usize = 104;
const CHARACTER: f64 = 8.0;
const LINE: usize = 19;
const MARGIN: usize = 18;
/// Seconds that a reader is given: for a scene, for a line of output, and between a command and its output.
const SCENE: f64 = 2.0;
const READ_LINE: f64 = 0.35;
const PAUSE: f64 = 0.7;

/// A line of the window, and when in its scene it appears.
struct TimedLine {
    class: &'static str,
    text: String,
    after: f64,
}

pub(super) fn svg(scenes: &[Scene]) -> String {
    let scenes: Vec<Vec<TimedLine>> = scenes.iter().map(lines).collect();
    let seconds =
        |scene: &Vec<TimedLine>| SCENE + scene.last().map_or(0.0, |line| line.after) + scene.len() as f64 * READ_LINE;
    let total: f64 = scenes.iter().map(seconds).sum();
    let height = scenes.iter().map(Vec::len).max().unwrap_or(0) * LINE + 2 * MARGIN;
    let width = (COLUMNS as f64 * CHARACTER) as usize + 2 * MARGIN;
    let (mut styles, mut body, mut begin) = (String::new(), String::new(), 0.0);
    for (number, scene) in scenes.iter().enumerate() {
        let end = begin + seconds(scene);
        let last = number + 1 == scenes.len();
        let _ = writeln!(body, "<g class=\"{}\">", if last { "last" } else { "scene" });
        for (row, line) in scene.iter().enumerate() {
            let name = format!("l{number}-{row}");
            let share = |at: f64| (at / total * 100.0).min(99.9);
            let (from, to) = (share(begin + line.after), share(end));
            let _ = writeln!(
                styles,
                "@keyframes {name}{{0%,{from:.2}%{{opacity:0}}{:.2}%,{to:.2}%{{opacity:1}}{:.2}%,100%{{opacity:0}}}}",
                from + 0.01,
                to + 0.01
            );
            let y = MARGIN + (row + 1) * LINE - 5;
            let _ = writeln!(
                body,
                "<text class=\"{}\" x=\"{MARGIN}\" y=\"{y}\" style=\"animation-name:{name}\">{}</text>",
                line.class,
                escape(&line.text)
            );
        }
        body.push_str("</g>\n");
        begin = end;
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\">\n<style>\n\
         text{{font:13px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;white-space:pre;fill:#d6deeb;animation:{total:.1}s infinite}}\n\
         .caption{{fill:#7fdbca}}.command{{fill:#fff;font-weight:bold}}.scene{{opacity:0}}\n\
         @media (prefers-reduced-motion:no-preference){{.scene{{opacity:1}}\n{styles}}}\n</style>\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#10202f\"/>\n{body}</svg>\n"
    )
}

fn lines(scene: &Scene) -> Vec<TimedLine> {
    let caption = TimedLine { class: "caption", text: format!("# {}", scene.caption), after: 0.0 };
    let (mut all, mut after) = (vec![caption], PAUSE);
    for shown in &scene.commands {
        all.extend(wrapped(&format!("$ {}", shown.command)).map(|text| TimedLine { class: "command", text, after }));
        after += PAUSE;
        let output = shown.output.trim_end().lines().flat_map(wrapped);
        let before = all.len();
        all.extend(output.map(|text| TimedLine { class: "output", text, after }));
        after += (all.len() - before) as f64 * READ_LINE;
    }
    all
}

fn wrapped(line: &str) -> impl Iterator<Item = String> + use<> {
    let characters: Vec<char> = line.chars().collect();
    let chunks: Vec<String> = characters.chunks(COLUMNS).map(|chunk| chunk.iter().collect()).collect();
    let empty = chunks.is_empty().then(String::new);
    chunks.into_iter().chain(empty)
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scene(command: &str, output: &str) -> Scene {
        Scene { caption: "a", commands: vec![Shown { command: command.to_owned(), output: output.to_owned() }] }
    }

    #[test]
    fn what_was_printed_is_escaped_and_long_lines_are_continued() {
        let svg = svg(&[scene("a > b", &format!("<i>&\n{}", "x".repeat(COLUMNS + 1)))]);
        assert!(svg.contains(">$ a &gt; b</text>") && svg.contains(">&lt;i&gt;&amp;</text>"), "{svg}");
        assert!(svg.contains(&format!(">{}</text>", "x".repeat(COLUMNS))) && svg.contains(">x</text>"), "{svg}");
    }

    #[test]
    fn scenes_follow_each_other_and_the_last_is_seen_without_animation() {
        let svg = svg(&[scene("first", ""), scene("second", "")]);
        let at = |text: &str| svg.find(text).unwrap_or_else(|| panic!("{text} is not in {svg}"));
        assert!(at("class=\"scene\"") < at("$ first") && at("$ first") < at("class=\"last\""));
        assert!(at("class=\"last\"") < at("$ second"));
    }
}
