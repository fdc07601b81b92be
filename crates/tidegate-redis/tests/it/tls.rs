//! Connections with TLS.

use std::fs;
use std::path::Path;
use std::time::Duration;

use tidegate::redis::Redis;
use tidegate_redis_servers::{Certificate, Cluster, Program, Sentinel, Server, TlsFiles};

use crate::nodes::WINDOW;
use crate::support::{ADA, Node, builder, eventually};

#[test]
fn tls_with_certificates_of_both_sides() {
    // Its folder holds the files.
    let other = Server::start(Program::Redis7);
    let ours = Certificate::self_signed(other.folder(), "server");
    let client = Certificate::self_signed(other.folder(), "client");
    let files = TlsFiles {
        certificate: ours.path.clone(),
        key: ours.key.clone(),
        authority: client.path.clone(),
    };
    let server = Server::builder(Program::Redis7).password("p&w").tls(files).start();
    let url = server.tls_url().unwrap();
    let node = Node::with(builder(&url).ca_file(&ours.path), WINDOW);
    assert_eq!(node.allows(&ADA), Some(true), "{:?}", node.redis.failure());

    let _ = server.command(&["CONFIG", "SET", "tls-auth-clients", "yes"]).success();
    let with_client = |files: &Certificate| {
        builder(&url)
            .deadline(Duration::from_secs(1))
            .ca_file(&ours.path)
            .client_certificate_files(&files.path, &files.key)
    };
    let node = Node::with(with_client(&client), WINDOW);
    assert_eq!(node.left(), 499, "the same records");
    let wrong = Node::with(with_client(&ours), WINDOW);
    assert_eq!(wrong.allows(&ADA), None);
    let failure = eventually("it has failed", || wrong.redis.failure()).unwrap();
    assert!(failure.contains("certificate") || failure.contains("UnknownCA"), "{failure}");
}

/// A certificate for servers that are each other's clients, with its folder.
fn server_files() -> (Server, TlsFiles) {
    let other = Server::start(Program::Redis7);
    let Certificate { path, key } = Certificate::self_signed(other.folder(), "server");
    let files = TlsFiles { certificate: path.clone(), key, authority: path };
    (other, files)
}

#[test]
fn sentinels_with_tls_and_a_login_name_a_primary_with_tls() {
    let (_folder, files) = server_files();
    let settings = Server::builder(Program::Redis7).password("pw").tls(files.clone());
    let sentinels = Sentinel::start_with(&settings);
    for sentinel in sentinels.sentinels() {
        let rules = ["ACL", "SETUSER", "scout", "on", ">sentinel-pw", "&*", "+@all"];
        let _ = sentinel.command(&rules).success();
        let _ = sentinel.command(&["ACL", "SETUSER", "default", "-@all", "+ping"]).success();
    }
    let hosts = sentinels.sentinels().iter().map(|it| it.tls_address().unwrap().to_string());
    let hosts = hosts.collect::<Vec<_>>().join(",");
    let url = format!("rediss+sentinel://{hosts}/{}", Sentinel::NAME);
    let login = |password: &str| {
        let builder = builder(&url).ca_file(&files.authority).password("pw");
        builder.sentinel_login(Some("scout"), password)
    };
    let node = Node::with(login("sentinel-pw"), WINDOW);
    assert_eq!(node.allows(&ADA), Some(true), "{:?}", node.redis.failure());
    let wrong = Node::with(login("horse").deadline(Duration::from_millis(200)), WINDOW);
    assert_eq!(wrong.allows(&ADA), None);
    let failure = eventually("it has failed", || wrong.redis.failure()).unwrap();
    assert!(failure.contains("sentinel") && !failure.contains("horse"), "{failure}");
}

#[test]
fn nodes_of_a_cluster_with_tls_name_each_other_with_tls() {
    let (_folder, files) = server_files();
    let cluster = Cluster::start_with(&Server::builder(Program::Redis7).tls(files.clone()));
    let slot = cluster.slot_of("{tidegate}:control");
    // A seed that does not have the slot.
    let other = &cluster.nodes()[(cluster.primary_of(slot) + 1) % 3];
    let url = format!("rediss+cluster://{}", other.tls_address().unwrap());
    let builder = builder(&url).ca_file(&files.authority);
    let node = Node::with(builder, WINDOW);
    assert_eq!(node.allows(&ADA), Some(true), "{:?}", node.redis.failure());
    assert_eq!(node.left(), 499);
}

#[test]
fn a_server_is_reached_by_the_path_of_its_socket() {
    let server = Server::builder(Program::Valkey9).password("p&w").with_unix_socket().start();
    let path = server.unix_socket().unwrap();
    for (scheme, left) in [("unix", 499), ("redis+unix", 498)] {
        let url = format!("{scheme}://{}", path.display());
        let node = Node::with(builder(&url).password("p&w"), WINDOW);
        assert_eq!(node.allows(&ADA), Some(true), "{:?}", node.redis.failure());
        assert_eq!(node.left(), left, "the same records");
    }
}

#[test]
fn a_password_is_either_in_the_address_or_set() {
    let server = Server::builder(Program::Redis7).password("p@/w").start();
    let url = format!("redis://{}", server.address());
    let node = Node::with(builder(&url).password("p@/w"), WINDOW);
    assert_eq!(node.allows(&ADA), Some(true), "{:?}", node.redis.failure());
    let error = builder(&server.url()).password("horse").build().unwrap_err().to_string();
    assert!(error.contains("another one is set") && !error.contains("horse"), "{error}");
}

#[test]
fn a_wrong_authority_is_an_outage_that_says_so() {
    let other = Server::start(Program::Redis7);
    let ours = Certificate::self_signed(other.folder(), "server");
    let wrong = Certificate::self_signed(other.folder(), "wrong");
    let files = TlsFiles {
        certificate: ours.path.clone(),
        key: ours.key.clone(),
        authority: ours.path.clone(),
    };
    let server = Server::builder(Program::Redis7).tls(files).start();
    let url = server.tls_url().unwrap();
    for builder in [builder(&url).ca_file(&wrong.path), builder(&url)] {
        let node = Node::with(builder.deadline(Duration::from_millis(200)), WINDOW);
        assert_eq!(node.allows(&ADA), None);
        // An attempt to connect may take too long, but not all of them.
        eventually("it says so", || node.redis.failure().filter(|it| it.contains("certificate")));
        assert_eq!(node.allows(&ADA), None);
    }
}

#[test]
fn files_that_cannot_be_used_are_named_with_the_reason() {
    let server = Server::start(Program::Redis7);
    let folder = server.folder();
    let (ours, other) =
        (Certificate::self_signed(folder, "ours"), Certificate::self_signed(folder, "other"));
    let (missing, empty, large) = (folder.join("no"), folder.join("empty"), folder.join("large"));
    fs::write(&empty, "nothing").unwrap();
    fs::write(&large, vec![b'a'; (1 << 20) + 1]).unwrap();
    let error = |files: [Option<&Path>; 3]| {
        let mut builder = Redis::builder("rediss://127.0.0.1:1");
        if let Some(path) = files[0] {
            builder = builder.ca_file(path);
        }
        if let [_, Some(certificate), Some(key)] = files {
            builder = builder.client_certificate_files(certificate, key);
        }
        builder.build().unwrap_err().to_string()
    };
    let (path, key) = (Some(&*ours.path), Some(&*ours.key));
    for (files, named, reason) in [
        ([Some(&*missing), None, None], &missing, "cannot be read"),
        ([Some(&*empty), None, None], &empty, "has no certificate"),
        ([key, None, None], &ours.key, "has no certificate"),
        ([Some(&*large), None, None], &large, "larger than 1 MiB"),
        ([None, Some(&*empty), key], &empty, "has no certificate"),
        ([None, path, Some(&*empty)], &empty, "has no key"),
        ([None, path, Some(&*other.key)], &other.key, "is not the key of"),
    ] {
        let text = error(files);
        assert!(text.contains(&named.display().to_string()), "{text}");
        assert!(text.contains(reason), "{text}");
    }
    let plain = Redis::builder("redis://127.0.0.1:1").ca_file(&ours.path).build().unwrap_err();
    assert!(plain.to_string().contains("rediss://"), "{plain}");
}
