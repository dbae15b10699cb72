//! Generates the message types and the descriptor set: Envoy's from the descriptor set in the `envoy-types` package, Istio's from `proto/`.
//! Generated code is not checked in.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use prost::Message;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FileDescriptorProto, FileDescriptorSet};

fn main() {
    println!("cargo:rerun-if-changed=proto");
    println!("cargo:rerun-if-changed=envoy-packages.txt");
    println!("cargo:rerun-if-changed=build.rs");
    let out = PathBuf::from(env::var("OUT_DIR").expect("cargo sets OUT_DIR"));
    let envoy = fs::read(envoy_types().join("src/generated/types.bin")).expect("envoy-types 0.7.7 carries types.bin");
    let own = own_protos();

    let mut pool = without_source_info(&envoy);
    let known: BTreeSet<String> = decode(&pool).file.into_iter().map(|f| f.name().to_owned()).collect();
    let added: Vec<_> = own.file.iter().filter(|f| !known.contains(f.name())).cloned().collect();
    pool.extend(FileDescriptorSet { file: added.clone() }.encode_to_vec());
    fs::write(out.join("descriptors.bin"), &pool).expect("OUT_DIR is writable");

    let roots = fs::read_to_string("envoy-packages.txt").expect("envoy-packages.txt stands beside build.rs");
    let roots: BTreeSet<&str> = roots.lines().collect();
    let mut file = reachable(&decode(&pool), &roots);
    file.extend(added.into_iter().filter(|f| !f.name().starts_with("google/")));
    generate(FileDescriptorSet { file: file.into_iter().map(with_packing).map(with_raw_metadata).collect() });
}

/// The source directory of the package. Tries offline first: a build with vendored or cached sources must not need a network.
fn envoy_types() -> PathBuf {
    let cargo = env::var("CARGO").expect("cargo sets CARGO");
    let ask = |extra: &[&str]| {
        let out = Command::new(&cargo).args(["metadata", "--format-version=1"]).args(extra).output().ok()?;
        let found: serde_json::Value = serde_json::from_slice(&out.stdout).ok()?;
        let package = found["packages"].as_array()?.iter().find(|p| p["name"] == "envoy-types")?;
        Some(Path::new(package["manifest_path"].as_str()?).parent()?.to_owned())
    };
    ask(&["--offline"])
        .or_else(|| ask(&[]))
        .expect("cargo metadata must find the envoy-types package; run `cargo fetch` once with a network")
}

fn own_protos() -> FileDescriptorSet {
    let mut files = Vec::new();
    let mut folders = vec![PathBuf::from("proto")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("proto/ is readable") {
            let path = entry.expect("proto/ is readable").path();
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    files.sort();
    protox::compile(files, ["proto"]).unwrap_or_else(|e| panic!("{e:?}"))
}

/// Files of the listed packages and their imports, each after its imports.
fn reachable(set: &FileDescriptorSet, roots: &BTreeSet<&str>) -> Vec<FileDescriptorProto> {
    let by_name: BTreeMap<&str, &FileDescriptorProto> = set.file.iter().map(|f| (f.name(), f)).collect();
    let mut wanted: Vec<&str> =
        set.file.iter().filter(|f| roots.contains(f.package())).map(FileDescriptorProto::name).collect();
    let mut taken = BTreeSet::new();
    while let Some(name) = wanted.pop() {
        if taken.insert(name) {
            wanted.extend(by_name[name].dependency.iter().map(String::as_str));
        }
    }
    set.file.iter().filter(|f| taken.contains(f.name())).cloned().collect()
}

fn generate(set: FileDescriptorSet) {
    prost_build::Config::new()
        .compile_well_known_types()
        // Deterministic encoding: hash maps would encode in random order.
        .btree_map(["."])
        .bytes([".google.protobuf.Any", NODE_METADATA])
        .type_attribute(".", "#[derive(::protobuf_derive::Encode)]")
        .enable_type_names()
        .type_name_domain(["."], "type.googleapis.com")
        .include_file("messages.rs")
        .compile_fds(set)
        .expect("descriptors generate");
}

/// Proto3 packs repeated numbers by default. prost-build ignores that for fields with any option, such as a validation rule, so it is set
/// explicitly.
fn with_packing(mut file: FileDescriptorProto) -> FileDescriptorProto {
    fn mark(message: &mut DescriptorProto) {
        for field in message.field.iter_mut().filter(|field| field.label() == Label::Repeated) {
            if let Some(options) = &mut field.options {
                options.packed.get_or_insert(true);
            }
        }
        message.nested_type.iter_mut().for_each(mark);
    }
    if file.syntax() == "proto3" {
        file.message_type.iter_mut().for_each(mark);
    }
    file
}

/// Kept as bytes, which have the same wire format as the message: most of it is never read, and a decoded tree is large.
const NODE_METADATA: &str = ".envoy.config.core.v3.Node.metadata";

fn with_raw_metadata(mut file: FileDescriptorProto) -> FileDescriptorProto {
    let package = file.package().to_owned();
    for message in &mut file.message_type {
        let name = format!(".{package}.{}", message.name());
        for field in message.field.iter_mut().filter(|field| format!("{name}.{}", field.name()) == NODE_METADATA) {
            field.set_type(Type::Bytes);
            field.type_name = None;
            field.proto3_optional = Some(true);
        }
    }
    file
}

fn decode(set: &[u8]) -> FileDescriptorSet {
    FileDescriptorSet::decode(set).expect("a descriptor set decodes")
}

/// Drops `source_code_info` (field 9 of each file) from the encoded set: decoding and encoding it would lose the validation options.
fn without_source_info(set: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(set.len() / 4);
    for file in fields(set) {
        let parts = fields(file.content.expect("a set holds files")).filter(|field| field.number != 9);
        let body: Vec<u8> = parts.flat_map(|field| field.whole.to_vec()).collect();
        protobuf::put_header(1, body.len(), &mut out);
        out.extend(body);
    }
    out
}

fn fields(message: &[u8]) -> impl Iterator<Item = protobuf::Field<'_>> {
    let mut rest = protobuf::Fields::new(message);
    std::iter::from_fn(move || rest.next_field().expect("a descriptor set is a message"))
}
