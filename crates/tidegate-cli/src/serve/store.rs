//! The store of the daemon, from flags and settings.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use tidegate::policy::{Secret, ServerSettings};
use tidegate::redis::{Redis, RedisBuilder};

use crate::args::StoreArgs;

/// Whether a store is a server that several daemons share.
pub(super) fn is_shared(store: &str) -> bool {
    let kind = store.split_once("://").map_or("", |(kind, _)| kind);
    let (kind, way) = kind.split_once('+').unwrap_or((kind, ""));
    match way {
        "" => matches!(kind, "redis" | "rediss" | "unix"),
        "sentinel" | "cluster" => matches!(kind, "redis" | "rediss"),
        "unix" => kind == "redis",
        _ => false,
    }
}

/// The folder of a store; `None` for the in-memory store.
pub(super) fn folder(store: &str) -> Result<Option<PathBuf>, String> {
    match store.split_once(':') {
        None if store == "memory" => Ok(None),
        Some(("file", path)) if !path.is_empty() => Ok(Some(Path::new(path).into())),
        _ => {
            // The rest of an address may have a password.
            let kind = store.split_once("://").map_or(store, |(kind, _)| kind);
            Err(format!(
                "unknown store {kind:?}\n  = hint: use memory, file:PATH or redis://HOST:PORT"
            ))
        }
    }
}

/// The store on a server that several daemons share.
pub(super) fn redis(url: &str, args: &StoreArgs, server: &ServerSettings) -> Result<Redis, String> {
    let mut builder = Redis::builder(url);
    let namespace = args.store_namespace.as_deref().or_else(|| server.store_namespace());
    if let Some(namespace) = namespace {
        builder = builder.namespace(namespace);
    }
    if let Some(replicas) = server.store_replicas() {
        builder = builder.replicas(replicas);
    }
    if let Some(deadline) = server.store_deadline() {
        builder = builder.deadline(deadline);
    }
    builder = with_login(builder, args, server)?;
    builder = with_certificates(builder, args, server)?;
    match secret(args.store_secret_file.as_deref(), server.store_secret())? {
        Some(secret) if secret.len() < SHORTEST_SECRET => {
            return Err(format!(
                "the secret of the store has {} bytes; it needs at least {SHORTEST_SECRET}\n  = hint: \
                 openssl rand -hex 32",
                secret.len()
            ));
        }
        Some(secret) => builder = builder.secret(secret),
        None => {
            tracing::warn!(
                "the names of keys on the store are hashed without a secret, so their attributes can be \
                 guessed, and clients can choose keys that share a limit: set store_secret"
            );
            builder = builder.without_secret();
        }
    }
    builder.build().map_err(|error| error.to_string())
}

fn with_login(
    mut builder: RedisBuilder,
    args: &StoreArgs,
    server: &ServerSettings,
) -> Result<RedisBuilder, String> {
    if let Some(password) = secret(args.store_password_file.as_deref(), server.store_password())? {
        builder = builder.password(&password);
    }
    let user = args.store_sentinel_user.as_deref().or_else(|| server.store_sentinel_user());
    let file = args.store_sentinel_password_file.as_deref();
    match (user, secret(file, server.store_sentinel_password())?) {
        (user, Some(password)) => Ok(builder.sentinel_login(user, &password)),
        (None, None) => Ok(builder),
        (Some(_), None) => Err("the user of the sentinels has no password\n  = hint: set \
                                store_sentinel_password, or --store-sentinel-password-file"
            .into()),
    }
}

fn with_certificates(
    mut builder: RedisBuilder,
    args: &StoreArgs,
    server: &ServerSettings,
) -> Result<RedisBuilder, String> {
    let path = |flag: &Option<PathBuf>, setting: Option<&str>| {
        flag.clone().or_else(|| setting.map(PathBuf::from))
    };
    if let Some(authority) = path(&args.store_ca, server.store_ca()) {
        builder = builder.ca_file(authority);
    }
    let certificate = path(&args.store_cert, server.store_cert());
    match (certificate, path(&args.store_key, server.store_key())) {
        (Some(certificate), Some(key)) => Ok(builder.client_certificate_files(certificate, key)),
        (None, None) => Ok(builder),
        (Some(_), None) => {
            Err("the certificate for the store has no key\n  = hint: set store_key, or \
                                --store-key"
                .into())
        }
        (None, Some(_)) => {
            Err("the key for the store has no certificate\n  = hint: set store_cert, \
                                or --store-cert"
                .into())
        }
    }
}

/// A secret from a file, else from the settings. The end of the file's last line is no part of it.
fn secret(file: Option<&Path>, setting: Option<&Secret>) -> Result<Option<String>, String> {
    let Some(path) = file else {
        return Ok(setting.map(|secret| secret.reveal().to_owned()));
    };
    let cannot_read =
        |why: &dyn std::fmt::Display| format!("cannot read {}: {why}", path.display());
    let mut text = String::new();
    let file = File::open(path).map_err(|error| cannot_read(&error))?;
    let read = file.take(LONGEST_SECRET + 1).read_to_string(&mut text);
    read.map_err(|error| cannot_read(&error))?;
    if u64::try_from(text.len()).is_ok_and(|length| length > LONGEST_SECRET) {
        return Err(cannot_read(&format_args!("it has more than {LONGEST_SECRET} bytes")));
    }
    let text = text.trim_end_matches(['\r', '\n']);
    if text.is_empty() {
        return Err(cannot_read(&"it is empty"));
    }
    Ok(Some(text.to_owned()))
}

/// How many bytes the secret for names of keys has at least.
const SHORTEST_SECRET: usize = 16;

/// How many bytes a file with a secret has at most.
const LONGEST_SECRET: u64 = 64 << 10;
