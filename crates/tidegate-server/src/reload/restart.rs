use tidegate::policy::{EngineSettings, ServerSettings};

/// The settings of a policy file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileSettings<'f> {
    pub(crate) engine: &'f EngineSettings,
    pub(crate) server: &'f ServerSettings,
}

/// The names of changed settings that need a restart.
pub(crate) fn needs_restart(
    before: FileSettings<'_>,
    after: FileSettings<'_>,
) -> Vec<&'static str> {
    let of_server = server(before.server, after.server);
    let of_engine = engine(before.engine, after.engine);
    of_server
        .into_iter()
        .chain(of_engine)
        .filter(|(_, is_same)| !is_same)
        .map(|(name, _)| name)
        .collect()
}

/// Whether each of the settings for the daemon is the same.
fn server(before: &ServerSettings, after: &ServerSettings) -> [(&'static str, bool); 33] {
    [
        ("http", before.http() == after.http()),
        ("grpc", before.grpc() == after.grpc()),
        ("resp", before.resp() == after.resp()),
        ("unix", before.unix() == after.unix()),
        ("admin", before.admin() == after.admin()),
        ("tokens", before.tokens() == after.tokens()),
        ("access", before.is_open() == after.is_open()),
        ("hosts", before.hosts().eq(after.hosts())),
        ("tls", before.tls() == after.tls()),
        ("unix_users", before.unix_users().eq(after.unix_users())),
        ("unix_groups", before.unix_groups().eq(after.unix_groups())),
        ("unix_user_rate", before.unix_user_rate() == after.unix_user_rate()),
        ("unix_rate", before.unix_rate() == after.unix_rate()),
        ("headers", before.headers() == after.headers()),
        ("user_header", before.user_header() == after.user_header()),
        ("response_metadata", before.response_metadata() == after.response_metadata()),
        ("log_keys", before.hides_keys() == after.hides_keys()),
        ("max_connections", before.max_connections() == after.max_connections()),
        (
            "max_connections_per_peer",
            before.max_connections_per_peer() == after.max_connections_per_peer(),
        ),
        ("max_received_bytes", before.max_received_bytes() == after.max_received_bytes()),
        ("max_unsent_bytes", before.max_unsent_bytes() == after.max_unsent_bytes()),
        ("store", before.store() == after.store()),
        ("store_namespace", before.store_namespace() == after.store_namespace()),
        ("store_secret", before.store_secret() == after.store_secret()),
        ("store_password", before.store_password() == after.store_password()),
        ("store_sentinel_user", before.store_sentinel_user() == after.store_sentinel_user()),
        (
            "store_sentinel_password",
            before.store_sentinel_password() == after.store_sentinel_password(),
        ),
        ("store_ca", before.store_ca() == after.store_ca()),
        ("store_cert", before.store_cert() == after.store_cert()),
        ("store_key", before.store_key() == after.store_key()),
        ("store_replicas", before.store_replicas() == after.store_replicas()),
        ("store_deadline", before.store_deadline() == after.store_deadline()),
        ("trusted_proxies", before.trusted_proxies() == after.trusted_proxies()),
    ]
}

/// Whether each of the settings that a store is created with, or that paths are read with, is the
/// same.
fn engine(before: &EngineSettings, after: &EngineSettings) -> [(&'static str, bool); 5] {
    [
        ("encoded_slash", before.encoded_slash() == after.encoded_slash()),
        ("max_keys", before.max_keys() == after.max_keys()),
        ("max_holds", before.max_holds() == after.max_holds()),
        ("max_idempotency_keys", before.max_idempotency_keys() == after.max_idempotency_keys()),
        ("when_full", before.when_full() == after.when_full()),
    ]
}
