//! The code and the descriptors of the protobuf files are those that are committed.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use prost::Message;
use prost_types::field_descriptor_proto::Type;
use prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorProto};

/// Modules in modules, and the code in them.
#[derive(Default)]
struct Tree {
    code: String,
    below: BTreeMap<String, Tree>,
}

impl Tree {
    fn write(&self, out: &mut String) {
        out.push_str(&self.code);
        for (name, tree) in &self.below {
            let _ = writeln!(out, "pub mod {name} {{");
            tree.write(out);
            out.push_str("}\n");
        }
    }
}

/// The fields of calls whose texts come from clients. They are read as bytes, because whatever a client
/// sends has to be decided about; on the wire it is the same.
const READ_AS_BYTES: [(&str, &[&str]); 2] =
    [("RateLimitRequest", &["domain"]), ("Entry", &["key", "value"])];

fn with_bytes(mut file: FileDescriptorProto) -> FileDescriptorProto {
    fn change(message: &mut DescriptorProto) {
        let found = READ_AS_BYTES.iter().find(|(name, _)| *name == message.name());
        if let Some((name, fields)) = found {
            let is_named = |it: &&mut FieldDescriptorProto| fields.contains(&it.name());
            let changed = message.field.iter_mut().filter(is_named);
            assert_eq!(changed.map(|it| it.set_type(Type::Bytes)).count(), fields.len(), "{name}");
        }
        message.nested_type.iter_mut().for_each(change);
    }
    file.message_type.iter_mut().for_each(change);
    file
}

/// Compares, or with `TIDEGATE_BLESS` writes them anew.
#[test]
fn what_is_committed_is_what_is_generated() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let files =
        protox::compile(["envoy/service/ratelimit/v3/rls.proto"], [here.join("proto")]).unwrap();
    let requests = files.file.iter().map(|file| {
        let module = prost_build::Module::from_protobuf_package_name(file.package());
        (module, with_bytes(file.clone()))
    });
    let mut config = prost_build::Config::new();
    let generated = config.generate(requests.collect()).unwrap();
    let mut root = Tree::default();
    for (module, code) in generated {
        // What protobuf itself brings along has a crate of its own.
        if module.parts().next() == Some("google") {
            continue;
        }
        let mut at = &mut root;
        for part in module.parts() {
            at = at.below.entry(part.to_owned()).or_default();
        }
        at.code = code;
    }
    let mut code = String::new();
    root.write(&mut code);
    let is_blessed = std::env::var_os("TIDEGATE_BLESS").is_some();
    for (name, bytes) in
        [("code.rs", code.into_bytes()), ("descriptors.bin", files.encode_to_vec())]
    {
        let path = here.join("src/rls").join(name);
        if is_blessed {
            std::fs::write(&path, &bytes).unwrap();
        }
        let committed = std::fs::read(&path).unwrap_or_default();
        assert!(committed == bytes, "{name} is old: write it anew with TIDEGATE_BLESS=1");
    }
}
