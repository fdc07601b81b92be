//! Certificates for tests, made by openssl.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::folder::Folder;

/// A certificate authority with a folder of its own, which is removed with this value.
#[derive(Debug)]
pub struct Authority {
    folder: Folder,
    certificate: Certificate,
    issued: AtomicU32,
}

/// The files of a certificate and its key, in the format PEM.
#[derive(Clone, Debug)]
pub struct Certificate {
    /// The certificate.
    pub path: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

/// A certificate that is going to be issued.
#[derive(Clone, Debug)]
pub struct Issue<'a> {
    authority: &'a Authority,
    subject: String,
    names: Vec<String>,
    dates: Option<(&'a str, &'a str)>,
}

impl Authority {
    /// A new authority.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let folder = Folder::new();
        let certificate = Certificate::at(folder.path(), "authority");
        openssl(
            new_key(&certificate, name)
                .args(["-x509", "-days", "30", "-addext", "basicConstraints=critical,CA:TRUE"])
                .args(["-addext", "keyUsage=critical,keyCertSign,cRLSign", "-out"])
                .arg(&certificate.path),
        );
        folder.write("ca.cnf", CONFIGURATION);
        Self { folder, certificate, issued: AtomicU32::new(0) }
    }

    /// The file of its certificate, for those that trust it.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.certificate.path
    }

    /// Its folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A certificate with this common name, valid from now on, for 127.0.0.1 and localhost, for
    /// servers and clients.
    #[must_use]
    pub fn server(&self, name: &str) -> Certificate {
        self.issue(name).names(&["IP:127.0.0.1", "DNS:localhost"]).write()
    }

    /// A certificate that has only this common name, unless more is said, and is valid from now on.
    #[must_use]
    pub fn issue(&self, name: &str) -> Issue<'_> {
        Issue { authority: self, subject: name.into(), names: Vec::new(), dates: None }
    }
}

impl Certificate {
    fn at(folder: &Path, name: &str) -> Self {
        Self { path: folder.join(format!("{name}.crt")), key: folder.join(format!("{name}.key")) }
    }

    /// A certificate for 127.0.0.1 that is its own authority, in a folder.
    #[must_use]
    pub fn self_signed(folder: &Path, name: &str) -> Self {
        let certificate = Self::at(folder, name);
        openssl(
            new_key(&certificate, name)
                .args(["-x509", "-days", "2", "-addext", "subjectAltName=IP:127.0.0.1"])
                .args(["-addext", "basicConstraints=critical,CA:FALSE", "-out"])
                .arg(&certificate.path),
        );
        certificate
    }
}

impl<'a> Issue<'a> {
    /// Sets alternative names, such as `DNS:app.example`, `URI:spiffe://example/app` or
    /// `IP:127.0.0.1`.
    #[must_use]
    pub fn names(mut self, names: &[&str]) -> Self {
        self.names = names.iter().map(|&name| name.into()).collect();
        self
    }

    /// Sets from when to when it is valid, each as `YYYYMMDDHHMMSSZ`.
    #[must_use]
    pub const fn valid(mut self, from: &'a str, to: &'a str) -> Self {
        self.dates = Some((from, to));
        self
    }

    /// Issues the certificate.
    #[must_use]
    pub fn write(self) -> Certificate {
        let Self { authority, subject, names, dates } = self;
        let number = authority.issued.fetch_add(1, Ordering::Relaxed);
        let folder = authority.folder.path();
        let certificate = Certificate::at(folder, &format!("{number}"));
        let request = folder.join(format!("{number}.csr"));
        let mut command = new_key(&certificate, &subject);
        if !names.is_empty() {
            command.args(["-addext", &format!("subjectAltName={}", names.join(","))]);
        }
        command.args(["-addext", "extendedKeyUsage=serverAuth,clientAuth"]);
        openssl(command.arg("-new").arg("-out").arg(&request));
        let mut command = Command::new("openssl");
        // Every certificate has a database of its own, so that tests may issue them in parallel.
        let database = authority.folder.write(&format!("{number}.txt"), "");
        command.current_dir(folder).env("DATABASE", database);
        command.args(["ca", "-batch", "-notext", "-config", "ca.cnf"]);
        command.args([OsStr::new("-cert"), authority.certificate.path.as_os_str()]);
        command.args([OsStr::new("-keyfile"), authority.certificate.key.as_os_str()]);
        match dates {
            Some((from, to)) => command.args(["-startdate", from, "-enddate", to]),
            None => command.args(["-days", "30"]),
        };
        openssl(command.arg("-in").arg(&request).arg("-out").arg(&certificate.path));
        certificate
    }
}

/// A command that makes a key.
fn new_key(certificate: &Certificate, name: &str) -> Command {
    let mut command = Command::new("openssl");
    command
        .args(["req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"])
        .args(["-subj", &format!("/CN={name}"), "-keyout"])
        .arg(&certificate.key);
    command
}

fn openssl(command: &mut Command) {
    let output = command.output().expect("openssl is missing: run scripts/install");
    assert!(output.status.success(), "{command:?}: {output:?}");
}

const CONFIGURATION: &str = "[ca]
default_ca = authority
[authority]
database = $ENV::DATABASE
new_certs_dir = .
rand_serial = yes
unique_subject = no
copy_extensions = copy
default_md = sha256
policy = any
email_in_dn = no
[any]
commonName = supplied
";
