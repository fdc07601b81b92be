//! The committed protobuf code and descriptors are up to date.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use prost::Message;
use prost_types::field_descriptor_proto::Type;
use prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorProto};

/// A module: its code and its submodules.
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

/// String fields of requests that come from clients. They are decoded as bytes, because a request
/// with invalid UTF-8 needs a decision too; the wire format is the same.
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

/// Compares the files; `TIDEGATE_BLESS` rewrites them.
#[test]
fn committed_code_is_up_to_date() {
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
        // The types of protobuf itself come from a crate.
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
        assert!(committed == bytes, "{name} is out of date: rewrite it with TIDEGATE_BLESS=1");
    }
}
