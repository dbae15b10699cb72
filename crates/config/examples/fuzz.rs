use std::time::{Duration, Instant};
fn main() {
    let secs: u64 = std::env::args().nth(1).unwrap().parse().unwrap();
    let seeds: Vec<String> = std::env::args().skip(2).map(|f| std::fs::read_to_string(f).unwrap()).collect();
    let mut x = 0x9E3779B97F4A7C15u64 ^ std::process::id() as u64;
    let mut rnd = move || { x ^= x << 13; x ^= x >> 7; x ^= x << 17; x };
    let tokens = ["a", "b: ", ": ", "- ", "? ", "\n", "\n  ", "\n    ", " ", "\t", "[", "]", "{", "}", ",", "&a ", "*a", "!!str ", "!x ", "|", ">", "|-", "|2", "'", "\"", "#", "---\n", "...\n", "%TAG ! a\n", "%YAML 1.2\n", "<<: ", "\\", "\\u00", "\r", "é", "😀", "\u{feff}", "\u{85}", "~", "0x", "kind: Service\n", "apiVersion: v1\n", "metadata: {name: a}\n", "spec:\n", "items:\n", "kind: List\n", "-", ":", "@", "`"];
    let start = Instant::now(); let mut n = 0u64;
    while start.elapsed() < Duration::from_secs(secs) {
        let text = if rnd() % 2 == 0 || seeds.is_empty() { let len = rnd() % 60; (0..len).map(|_| tokens[(rnd() % tokens.len() as u64) as usize]).collect::<String>() }
        else {
            let seed = &seeds[(rnd() % seeds.len() as u64) as usize];
            let chars: Vec<char> = seed.chars().collect();
            let s = (rnd() % chars.len() as u64) as usize; let e = (s + (rnd() % 800) as usize).min(chars.len());
            let mut c: Vec<char> = chars[s..e].to_vec();
            for _ in 0..rnd() % 6 { if c.is_empty() { break } let i = (rnd() % c.len() as u64) as usize; match rnd() % 4 { 0 => { c.remove(i); } 1 => { let t = tokens[(rnd() % tokens.len() as u64) as usize]; for (k, ch) in t.chars().enumerate() { c.insert(i + k, ch); } } 2 => { c.truncate(i); } _ => { c[i] = char::from((rnd() % 128) as u8); } } }
            c.into_iter().collect()
        };
        let t = Instant::now();
        let r = std::panic::catch_unwind(|| { config::object::parse_documents("f", &text); let _ = config::mesh::MeshConfig::parse(&text, "f"); });
        if r.is_err() { println!("PANIC {text:?}"); }
        if t.elapsed() > Duration::from_millis(500) { println!("SLOW {:?} {text:?}", t.elapsed()); }
        n += 1;
    }
    println!("{n} runs");
}
