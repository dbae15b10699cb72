//! Random damage to recorded answers, of every kind that a wrong control plane could do.

use serde_json::{Value, json};
use testkit::parity::ResponsesByProxy;

use testkit::random::Random;

pub(crate) fn mutate(random: &mut Random, answers: &mut ResponsesByProxy) {
    for answer in answers.values_mut() {
        for resources in answer.values_mut() {
            let names: Vec<String> = resources.keys().cloned().collect();
            for name in names {
                match random.below(12) {
                    0 => {
                        resources.remove(&name);
                    }
                    1 => {
                        let copy = resources[&name].clone();
                        resources.insert(format!("{name}-zürich"), copy);
                    }
                    2..6 => (0..3).for_each(|_| damage(random, resources.get_mut(&name).expect("it is there"))),
                    6 => shuffle_all(random, resources.get_mut(&name).expect("it is there")),
                    _ => {}
                }
            }
        }
    }
}

/// Walks down at random and changes what it ends at.
fn damage(random: &mut Random, tree: &mut Value) {
    let stop = random.one_in(6);
    match tree {
        Value::Object(fields) if !fields.is_empty() => {
            let keys: Vec<String> = fields.keys().cloned().collect();
            let key = random.pick(&keys);
            match (stop, random.below(2)) {
                (true, 0) => drop(fields.remove(&key)),
                (true, _) => drop(fields.insert("extra".to_owned(), json!({ "long": "x😀".repeat(random.below(90)) }))),
                _ => damage(random, &mut fields[&key]),
            }
        }
        Value::Array(items) if !items.is_empty() => {
            let at = random.below(items.len());
            match (stop, random.below(3)) {
                (true, 0) => drop(items.remove(at)),
                (true, 1) => items.push(items[at].clone()),
                (true, _) => shuffle(random, items),
                _ => damage(random, &mut items[at]),
            }
        }
        Value::Number(number) => *tree = if stop { json!(number.as_f64()) } else { json!(random.below(100)) },
        Value::Bool(set) => *tree = (!*set).into(),
        other => *other = random.pick(&[json!(null), json!("changed"), json!([]), json!({}), json!(1)]),
    }
}

fn shuffle_all(random: &mut Random, tree: &mut Value) {
    match tree {
        Value::Object(fields) => fields.values_mut().for_each(|value| shuffle_all(random, value)),
        Value::Array(items) => {
            shuffle(random, items);
            items.iter_mut().for_each(|item| shuffle_all(random, item));
        }
        _ => {}
    }
}

fn shuffle(random: &mut Random, items: &mut [Value]) {
    for end in (1..items.len()).rev() {
        items.swap(end, random.below(end + 1));
    }
}
