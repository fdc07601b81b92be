//! The `[server]` table.

use tidegate_table::table::WhenFull;

use super::values::{self, TableWriter, text};
use crate::policy::text::format_rate;
use crate::policy::{
    ClientCa, EngineSettings, Listen, Pattern, ServerSettings, TlsSettings, TlsTable, Unmatched,
};
use crate::request_path::EncodedSlash;

/// Adds the settings for a daemon.
pub(super) fn add_server(server: &ServerSettings, lines: &mut TableWriter) {
    let listeners = [
        ("http", &server.http),
        ("grpc", &server.grpc),
        ("resp", &server.resp),
        ("unix", &server.unix),
        ("admin", &server.admin),
    ];
    for (name, listen) in listeners {
        lines.add_some(
            name,
            listen.as_ref().map(|listen| match listen {
                Listen::Off => text("off"),
                Listen::At(address) => text(address),
            }),
        );
    }
    lines.add_some("tokens", server.tokens.as_deref().map(text));
    lines.add_unless(!server.is_open, "access", || text("open"));
    let hosts = &server.hosts;
    lines.add_unless(hosts.is_empty(), "hosts", || values::texts(hosts));
    lines.add_unless(server.tls == TlsSettings::default(), "tls", || tls(&server.tls));
    let secrets = [
        ("store_secret", &server.store_secret),
        ("store_password", &server.store_password),
        ("store_sentinel_password", &server.store_sentinel_password),
    ];
    for (name, secret) in secrets {
        lines.add_some(name, secret.as_ref().map(|secret| text(secret.reveal())));
    }
    for (name, names) in [("unix_users", &server.unix_users), ("unix_groups", &server.unix_groups)]
    {
        lines.add_unless(names.is_empty(), name, || values::texts(names));
    }
    for (name, rate) in [("unix_user_rate", server.unix_user_rate), ("unix_rate", server.unix_rate)]
    {
        lines.add_some(name, rate.map(|rate| text(&format_rate(rate))));
    }
    lines.add_some("headers", server.headers.as_deref().map(text));
    lines.add_some("user_header", server.user_header.as_deref().map(text));
    lines.add_unless(!server.merge_domains, "merge_domains", || "true".into());
    lines.add_unless(!server.response_metadata, "response_metadata", || "true".into());
    lines.add_unless(!server.hides_keys, "log_keys", || text("hashed"));
    let numbers = [
        ("max_connections", server.max_connections),
        ("max_connections_per_peer", server.max_connections_per_peer),
        ("max_received_bytes", server.max_received_bytes),
        ("max_unsent_bytes", server.max_unsent_bytes),
    ];
    for (name, number) in numbers {
        lines.add_some(name, number.map(|number| number.to_string()));
    }
    lines.add_some("store", server.store().map(text));
    lines.add_some("store_namespace", server.store_namespace.as_deref().map(text));
    let texts = [
        ("store_sentinel_user", &server.store_sentinel_user),
        ("store_ca", &server.store_ca),
        ("store_cert", &server.store_cert),
        ("store_key", &server.store_key),
    ];
    for (name, value) in texts {
        lines.add_some(name, value.as_deref().map(text));
    }
    lines.add_some("store_replicas", server.store_replicas.map(|count| count.to_string()));
    lines.add_some("store_deadline", server.store_deadline.map(values::duration));
    lines.add_unless(server.trusted_proxies.is_empty(), "trusted_proxies", || {
        let networks = server.trusted_proxies.iter();
        values::texts(networks.map(|it| Pattern::Network(it.address, it.bits).to_string()))
    });
}

/// The `tls` table, on one line.
fn tls(settings: &TlsSettings) -> String {
    let of = |table: &TlsTable| {
        let files = [("cert", &table.cert), ("key", &table.key)];
        let files = files.map(|(name, path)| path.as_ref().map(|path| (name, text(path))));
        let client_ca = table.client_ca.as_ref().map(|ca| match ca {
            ClientCa::Off => ("client_ca", text("off")),
            ClientCa::File(path) => ("client_ca", text(path)),
        });
        let off = table.is_off.then(|| ("off", "true".into()));
        files.into_iter().chain([client_ca, off]).flatten()
    };
    let listeners = settings.listeners().into_iter();
    let differing = listeners.filter(|(_, table)| **table != TlsTable::default());
    let differing = differing.map(|(name, table)| (name, values::table(of(table))));
    values::table(of(&settings.all).chain(differing))
}

/// Adds the settings that decisions and stores need.
pub(super) fn add_engine(engine: &EngineSettings, lines: &mut TableWriter) {
    lines
        .add_unless(engine.encoded_slash == EncodedSlash::Decode, "encoded_slash", || text("keep"));
    lines.add_unless(!engine.quota_mode, "quota_mode", || "true".into());
    lines.add_some("revision", engine.revision.map(|number| number.to_string()));
    let usual = EngineSettings::default();
    let bounds = [
        ("max_keys", engine.max_keys, usual.max_keys),
        ("max_holds", engine.max_holds, usual.max_holds),
        ("max_idempotency_keys", engine.max_idempotency_keys, usual.max_idempotency_keys),
    ];
    for (name, number, usual) in bounds {
        lines.add_unless(number == usual, name, || number.to_string());
    }
    match engine.when_full {
        WhenFull::Share => {}
        WhenFull::Deny => lines.add("when_full", text("deny")),
    }
    match engine.unmatched {
        Unmatched::Allow => {}
        Unmatched::Deny => lines.add("unmatched", text("deny")),
    }
    match engine.enforce_ppm {
        EngineSettings::ENFORCE_ALL_PPM => {}
        0 => lines.add("enforce", text("none")),
        ppm => lines.add("enforce", format!("0.{ppm:06}").trim_end_matches('0').into()),
    }
}
