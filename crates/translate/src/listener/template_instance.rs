//! An instance of a listener template: the template's bytes, and the literals to splice between them. Instances of one template share its
//! bytes.

use std::sync::Arc;

use protobuf::{Fields, put_header};

#[derive(Debug)]
pub struct TemplateInstance {
    pub template: Arc<[u8]>,
    /// The bytes that are not in the template, concatenated.
    pub literals: Vec<u8>,
    /// Repeated: copy this many literal bytes, skip this many template bytes, copy this many template bytes.
    pub splices: Vec<[usize; 3]>,
}

/// The maximum depth of nested messages that are compared.
const MAX_DEPTH: usize = 12;

/// Writes an instance, from the first to the last byte of its template.
pub(super) struct InstanceWriter<'a, 'k> {
    template: &'a Arc<[u8]>,
    literals: Vec<u8>,
    splices: Vec<[usize; 3]>,
    /// The position in the template.
    at: usize,
    /// Literal bytes that are covered by splices already.
    flushed: usize,
    /// Template bytes to skip with the next splice.
    skipped: usize,
    /// The connection managers of one workload have equal slot values: each value is compared once.
    diffs: &'k mut Vec<FieldDiff<'a>>,
}

/// A slot value and its difference from the template's value.
pub(super) struct FieldDiff<'a> {
    base: &'a [u8],
    target: &'a [u8],
    ops: Vec<DiffOp<'a>>,
}

#[derive(Clone, Copy)]
enum DiffOp<'a> {
    Copy(usize),
    Skip(usize),
    Literal(&'a [u8]),
    MessageHeader { field: u32, len: usize },
}

impl TemplateInstance {
    pub fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let (mut literals, mut template) = (&self.literals[..], &self.template[..]);
        self.splices.iter().flat_map(move |[next, skipped_bytes, copied]| {
            let (flushed, from_template);
            (flushed, literals) = literals.split_at(*next);
            (from_template, template) = template[*skipped_bytes..].split_at(*copied);
            [flushed, from_template]
        })
    }
}

impl<'a, 'k> InstanceWriter<'a, 'k> {
    pub(super) fn of(template: &'a Arc<[u8]>, diffs: &'k mut Vec<FieldDiff<'a>>) -> Self {
        let (literals, splices) = (Vec::with_capacity(512), Vec::with_capacity(64));
        Self { template, literals, splices, at: 0, flushed: 0, skipped: 0, diffs }
    }

    pub(super) fn copy(&mut self, len: usize) {
        let literals = self.literals.len() - self.flushed;
        match self.splices.last_mut() {
            Some([.., copied]) if literals == 0 && self.skipped == 0 => *copied += len,
            _ => self.splices.push([literals, std::mem::take(&mut self.skipped), len]),
        }
        (self.flushed, self.at) = (self.literals.len(), self.at + len);
    }

    fn skip(&mut self, len: usize) {
        (self.skipped, self.at) = (self.skipped + len, self.at + len);
    }

    /// Writes the tag and length of a message.
    pub(super) fn write_header(&mut self, field: u32, len: usize) {
        put_header(field, len, &mut self.literals);
    }

    /// Writes these fields in place of the next fields of the template.
    pub(super) fn write_diff(&mut self, len: usize, target: &'a [u8]) {
        let template: &'a [u8] = self.template;
        let base = &template[self.at..self.at + len];
        let known = self.diffs.iter().position(|diff| std::ptr::eq(diff.target, target) && diff.base == base);
        let index = known.unwrap_or_else(|| {
            let mut ops = Vec::with_capacity(32);
            diff_fields(base, target, MAX_DEPTH, &mut ops);
            self.diffs.push(FieldDiff { base, target, ops });
            self.diffs.len() - 1
        });
        for at in 0..self.diffs[index].ops.len() {
            match self.diffs[index].ops[at] {
                DiffOp::Copy(len) => self.copy(len),
                DiffOp::Skip(len) => self.skip(len),
                DiffOp::Literal(bytes) => self.literals.extend_from_slice(bytes),
                DiffOp::MessageHeader { field, len } => self.write_header(field, len),
            }
        }
    }

    pub(super) fn finish(self) -> TemplateInstance {
        let Self { template, literals, mut splices, flushed, .. } = self;
        if flushed < literals.len() {
            splices.push([literals.len() - flushed, 0, 0]);
        }
        TemplateInstance { template: template.clone(), literals, splices }
    }
}

fn diff_fields<'a>(template: &'a [u8], target: &'a [u8], levels: usize, out: &mut Vec<DiffOp<'a>>) {
    let (mut template, mut target) = (Fields::new(template), Fields::new(target));
    while let Ok(Some(field)) = target.next_field() {
        let mut rest = template;
        let Some(base) = rest.next_field().ok().flatten().filter(|base| base.number == field.number) else {
            out.push(DiffOp::Literal(field.whole));
            continue;
        };
        match (field.content, base.content) {
            _ if field.whole == base.whole => out.push(DiffOp::Copy(field.whole.len())),
            (Some(content), Some(base_content)) if levels > 0 && is_message(content) && is_message(base_content) => {
                out.push(DiffOp::MessageHeader { field: field.number, len: content.len() });
                out.push(DiffOp::Skip(base.whole.len() - base_content.len()));
                diff_fields(base_content, content, levels - 1, out);
            }
            _ => out.extend([DiffOp::Literal(field.whole), DiffOp::Skip(base.whole.len())]),
        }
        template = rest;
    }
    out.push(DiffOp::Skip(template.left()));
}

/// Whether it parses as a message. Other bytes may parse too, which is harmless: only the structure is used.
fn is_message(content: &[u8]) -> bool {
    let mut fields = Fields::new(content);
    loop {
        match fields.next_field() {
            Ok(Some(_)) => {}
            end => return end.is_ok() && !content.is_empty(),
        }
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;
    use wire::google::protobuf::{Struct, Value, value::Kind};

    use super::*;

    fn encode_texts(texts: &[(&str, &str)]) -> Vec<u8> {
        let value = |text: &str| Value { kind: Some(Kind::StringValue(text.to_owned())) };
        let fields = texts.iter().map(|(name, text)| ((*name).to_owned(), value(text))).collect();
        Struct { fields }.encode_to_vec()
    }

    #[test]
    fn only_differences_from_the_template_are_literals() {
        let long = "the same in all of them, and so long that it matters".to_owned();
        let all = [
            encode_texts(&[("a", &long), ("b", "x"), ("c", &long)]),
            encode_texts(&[("a", &long), ("b", &long.repeat(5)), ("c", &long)]),
            encode_texts(&[("b", "x")]),
            encode_texts(&[("z", "\u{a}\u{1}x")]),
            Vec::new(),
        ];
        for base in &all {
            for target in &all {
                let template: Arc<[u8]> = [b"before", &base[..], b"after"].concat().into();
                let mut diffs = Vec::new();
                let mut writer = InstanceWriter::of(&template, &mut diffs);
                writer.copy(6);
                writer.write_diff(base.len(), target);
                writer.copy(5);
                let instance = writer.finish();
                let bytes: Vec<u8> = instance.pieces().flatten().copied().collect();
                assert_eq!(bytes, [b"before", &target[..], b"after"].concat());
                if base == target {
                    assert!(instance.literals.is_empty() && instance.splices.len() == 1);
                }
            }
        }
        let template: Arc<[u8]> = all[0].clone().into();
        let target = encode_texts(&[("a", &long), ("b", "yy"), ("c", &long)]);
        let twice: Arc<[u8]> = [&template[..], &template[..]].concat().into();
        let mut diffs = Vec::new();
        let mut writer = InstanceWriter::of(&twice, &mut diffs);
        writer.write_diff(template.len(), &target);
        writer.write_diff(template.len(), &target);
        let instance = writer.finish();
        assert!(instance.literals.len() < 32);
        assert_eq!(instance.pieces().flatten().copied().collect::<Vec<u8>>(), target.repeat(2));
    }
}
