use std::time::Instant;
fn main() {
    let n = 4 << 20;
    let rep = |s: &str| s.repeat(n / s.len());
    let mut cases: Vec<(&str, String)> = vec![
        ("list flow", format!("[{}1]", rep("1,"))), ("open flow", rep("[")), ("open flow map", rep("{")), ("open flow a:", rep("{a: ")), ("dash nest", rep("- ")), ("dash lines", rep("- a\n")),
        ("question", rep("? ")), ("colon", rep(": ")), ("long plain", rep("a")), ("long words", rep("a ")), ("long lines plain", rep("a\n")), ("comments", rep("# a\n")), ("comment no nl", rep("#")),
        ("anchors", rep("- &a a\n")), ("uniq keys", (0..n/12).map(|i| format!("k{i}: v\n")).collect()), ("tags", rep("- !!str a\n")), ("long dq", format!("\"{}\"", rep("a"))), ("dq nl", format!("\"{}\"", rep("a\n"))), ("literal", format!("|\n{}", rep(" a\n"))), ("folded", format!(">\n{}", rep(" a\n"))),
        ("literal blank", format!("|\n{}", rep("\n"))), ("docs", rep("---\na\n")), ("docs2", rep("a: b\n---\n")), ("blank", rep("\n")), ("spaces", rep(" ")), ("tabs", rep("\t")), ("percent", rep("%a\n")), ("alias", format!("- &a a\n{}", rep("- *a\n"))),
        ("deep indent", (0..2800).map(|i| format!("{}a:\n", " ".repeat(i))).collect()), ("deep seq", (0..2800).map(|i| format!("{}-\n", " ".repeat(i))).collect()), ("flow keys", format!("{{{}}}", rep("a, "))), ("flow str keys", format!("{{{}}}", rep("\"a\": 1, "))), ("json nested arr", format!("[{}[]]", rep("[],"))), ("flow quoted", rep("\"a\" ")), ("crlf", rep("- a\r\n")), ("indent err", rep("a:\n b:\n  c: d\n")), ("bang", rep("!")), ("amp", rep("&")), ("star", rep("*")), ("pipe", rep("|")), ("emoji", rep("😀")), ("bom", rep("\u{feff}")), ("comma", rep(",")), ("rbr", rep("]")), ("flow comments", format!("[{}", rep("#a\n"))), ("flow nl", format!("[{}", rep("\n"))), ("flow ?", format!("[{}", rep("? ,"))), ("flow plain nl", format!("[{}", rep("a\n"))), ("key long", format!("{}: a", "a".repeat(n))), ("flow pairs", format!("[{}]", rep("a: b, ")))
    ];
    let mut bomb = String::from("a0: &a0 [x,x,x,x,x,x,x,x,x]\n");
    for i in 1..60 { bomb.push_str(&format!("a{i}: &a{i} [{}]\n", vec![format!("*a{}", i-1); 9].join(","))); }
    cases.push(("bomb", bomb));
    let mut t = format!("a0: &a0 {}\n", "x".repeat(1<<20)); for _ in 0..1000 { t.push_str("b: *a0\n"); }
    cases.push(("text bomb", t));
    let mut t = String::from("- &a0 []\n"); for i in 1..100000 { t.push_str(&format!("- &a{i} [*a{}]\n", i-1)); }
    cases.push(("deep alias", t));
    let mut t = String::from("- &a0 {a: 1}\n"); for i in 1..100000 { t.push_str(&format!("- &a{i} {{<<: *a{}, k{i}: 1}}\n", i-1)); }
    cases.push(("merge chain", t));
    for (name, text) in &cases {
        let t = Instant::now();
        let mut ok = 0; let mut err = String::new();
        for d in config::yaml::documents(text, config::yaml::Scalars::Objects) { match d { Ok(_) => ok += 1, Err(e) => err = format!("{}:{} {}", e.at.line, e.at.column, e.what) } }
        let ms = t.elapsed().as_millis();
        println!("{name:20} {:>8} bytes {ms:>6} ms  ok={ok} {}", text.len(), err.chars().take(100).collect::<String>());
    }
}
