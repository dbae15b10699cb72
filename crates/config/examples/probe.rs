fn main() {
    for t in ["a: b\n\tc: d\n", "a:\n\t- b\n", "a: [1, 2\n", "a: 'x\n", "a: \"x\n", "a: b: c\n", "- a\nb: c\n", "{\n\t\"a\": 1,\n\t\"b\": [\n\t\t1\n\t]\n}", "{\"a\": \"\\ud83d\\ude00 \\/ \\u003c\"}", "a: |\n  x\n  y\nb: *c\n", "a: &x [*x]\n", "a: !foo b\nb: ! 5\nc: !!str 5\n", "a: 1\n---\nb: &q 2\n---\nc: *q\n", "? [a]\n: b\n", "a: {{ .Values.x }}\n", "%YAML 1.1\n---\na: b\n", "a: b\n...\n", "# only\n", "", "---\n---\n", "a:\n - b\n  c\n", "<<: {a: 1}\nb: 2\n", "x: &x {a: 1, b: 2}\ny: {<<: *x, b: 3}\nz: {<<: [*x, {c: 4}]}\n", "a:\n  b: 1\n c: 2\n", "key: >\n folded\n text\n", "a: @b\n", "a: `b\n", "a: %b\n","\u{feff}a: b\n", "a: b #c\nd: e#f\n", "80: x\nyes: y\n~: z\n", "metadata:\nname: x\n  labels: y\n","{\"a\":1}{\"b\":2}", "{\"a\":1}\n{\"b\":2}\n", "kind: Service\nmetadata: {name: a", "a: b\r\nc: d\r\n", "spec:\n  x: 1\n  - y\n", "a: \u{7}\n", "&a a: 1\n*a : 2\n"] {
        println!("{t:?}");
        for d in config::yaml::documents(t, config::yaml::Scalars::Objects) {
            match d { Ok(n) => println!("   ok {}", show(&n)), Err(e) => println!("   ERR {e:?}") }
        }
    }
}
fn show(n: &config::tree::Node) -> String {
    use config::tree::Value::*;
    let v = match &n.value { List(l) => format!("[{}]", l.iter().map(show).collect::<Vec<_>>().join(", ")), Mapping(m) => format!("{{{}}}", m.iter().map(|e| format!("{}@{}:{}={}", e.key, e.key_at.line, e.key_at.column, show(&e.value))).collect::<Vec<_>>().join(", ")), v => format!("{v:?}") };
    format!("{v}@{}:{}", n.at.line, n.at.column)
}
