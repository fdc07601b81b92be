//! The `[server.tls]` table.

use super::reader::TableReader;
use crate::policy::tls::{ClientCa, TlsSettings, TlsTable};

pub(super) fn read(table: &mut TableReader<'_, '_>) -> TlsSettings {
    let all = read_files(table);
    let mut of = |name: &str| table.table(name).map(|mut it| read_listener(&mut it));
    TlsSettings {
        all,
        http: of("http").unwrap_or_default(),
        grpc: of("grpc").unwrap_or_default(),
        resp: of("resp").unwrap_or_default(),
        admin: of("admin").unwrap_or_default(),
    }
}

/// The table of one listener.
fn read_listener(table: &mut TableReader<'_, '_>) -> TlsTable {
    let is_off = table.boolean("off").unwrap_or(false);
    let files = TlsTable { is_off, ..read_files(table) };
    let has_files = files.cert.is_some() || files.key.is_some() || files.client_ca.is_some();
    if is_off && has_files {
        let message = "a listener without TLS has no files for it";
        table.refuse("off", message, "remove `off`, or the files");
    }
    files
}

fn read_files(table: &mut TableReader<'_, '_>) -> TlsTable {
    let files = TlsTable {
        cert: table.text("cert").map(Into::into),
        key: table.text("key").map(Into::into),
        client_ca: table.text("client_ca").map(|path| match path {
            "off" => ClientCa::Off,
            path => ClientCa::File(path.into()),
        }),
        is_off: false,
    };
    // Values of another kind have been reported.
    for (field, missing) in [("cert", "key"), ("key", "cert")] {
        if table.value(field).is_some() && table.value(missing).is_none() {
            let hint = "a certificate and its key belong together: set both";
            table.refuse(field, format!("`{field}` has no `{missing}`"), hint);
        }
    }
    files
}
