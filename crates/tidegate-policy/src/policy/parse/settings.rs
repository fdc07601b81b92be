//! The `[server]` table, for the engine.

use tidegate_table::table::WhenFull;
use toml::de::DeValue;

use super::reader::TableReader;
use crate::policy::settings::{EngineSettings, Unmatched};
use crate::policy::share::millionths;
use crate::policy::text::{TextError, quoted};
use crate::request_path::EncodedSlash;

pub(super) fn read(table: &mut TableReader<'_, '_>) -> EngineSettings {
    let usual = EngineSettings::default();
    EngineSettings {
        max_keys: table.integer("max_keys").unwrap_or(usual.max_keys),
        max_holds: table.integer("max_holds").unwrap_or(usual.max_holds),
        max_idempotency_keys: table
            .integer("max_idempotency_keys")
            .unwrap_or(usual.max_idempotency_keys),
        when_full: match table.choice("when_full") {
            Some("deny") => WhenFull::Deny,
            _ => WhenFull::Share,
        },
        unmatched: match table.choice("unmatched") {
            Some("deny") => Unmatched::Deny,
            _ => Unmatched::Allow,
        },
        enforce_ppm: read_enforce(table).unwrap_or(usual.enforce_ppm),
        quota_mode: table.boolean("quota_mode").unwrap_or(usual.quota_mode),
        encoded_slash: match table.choice("encoded_slash") {
            Some("keep") => EncodedSlash::Keep,
            _ => EncodedSlash::Decode,
        },
        revision: table.integer("revision"),
    }
}

/// Millionths of the keys.
fn read_enforce(table: &mut TableReader<'_, '_>) -> Option<u32> {
    let value = table.value("enforce")?;
    let text = match value.get_ref() {
        DeValue::Float(float) => float.as_str(),
        DeValue::Integer(integer) => integer.as_str(),
        _ => {
            return table.choice("enforce").map(|word| match word {
                "all" => EngineSettings::ENFORCE_ALL_PPM,
                _ => 0,
            });
        }
    };
    let problem = || {
        TextError::new(format!("{} is not a share of the keys", quoted(text)))
            .hint("write \"all\", \"none\", or a fraction from 0.0 to 1.0 with up to six decimals")
    };
    table.or_report("enforce", millionths(text).ok_or_else(problem))
}
