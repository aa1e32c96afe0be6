use super::*;
use crate::error::Operation;

fn refusal(url: &str) -> String {
    match Store::from_url(url) {
        Err(error @ Error::InvalidInput { .. }) => error.to_string(),
        other => panic!("{url}: {other:?}"),
    }
}

fn holds(store: &Store, name: &str) -> bool {
    use object_store::ObjectStoreExt;
    let at = store.root().clone().join(name);
    in_runtime(store.object_store().head(&at)).is_ok()
}

fn put(store: &Store, name: &str) {
    use object_store::ObjectStoreExt;
    let at = store.root().clone().join(name);
    in_runtime(store.object_store().put(&at, "x".into())).expect("the put");
}

/// A local store does its work on threads of a runtime.
fn in_runtime<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(work)
}

#[test]
fn a_memory_store_is_found_again_by_its_name_and_only_by_it() {
    let first = Store::from_url("memory://by-name/a").expect("the store");
    put(&first, "one");
    assert!(holds(&Store::from_url("memory://by-name/a/").expect("the store"), "one"));
    assert!(!holds(&Store::from_url("memory://by-name/b").expect("the store"), "one"));
    assert!(!holds(&Store::from_url("memory://by-name-2/a").expect("the store"), "one"));
    assert_eq!(first.kind(), StoreKind::Memory);
}

#[test]
fn fresh_memory_is_shared_by_clones_and_by_nothing_else() {
    let (one, other) = (Store::memory(), Store::memory());
    put(&one, "a");
    assert!(holds(&one.clone(), "a"));
    assert!(!holds(&other, "a"));
}

#[test]
fn a_path_and_a_file_url_open_the_same_new_folder() {
    use object_store::ObjectStoreExt;
    let scratch = tempfile::tempdir().expect("a folder");
    let folder = scratch.path().join("new").join("with space");
    let by_path = Store::from_url(folder.to_str().expect("utf-8")).expect("the store");
    assert!(folder.is_dir());
    let url = Url::from_file_path(&folder).expect("a url");
    let by_url = Store::from_url(url.as_str()).expect("the store");
    in_runtime(async {
        by_path.object_store().put(&Path::from("a/b"), "x".into()).await.expect("the put");
        by_url.object_store().head(&Path::from("a/b")).await.expect("the object");
    });
    assert!(folder.join("a/b").is_file());
    assert_eq!((by_path.kind(), by_url.kind()), (StoreKind::Local, StoreKind::Local));
    assert_eq!(by_path.root(), &Path::default());
}

#[test]
fn w1_a_local_store_syncs_its_writes() {
    let scratch = tempfile::tempdir().expect("a folder");
    let store = local::open(scratch.path()).expect("the store");
    assert!(format!("{store:?}").contains("fsync: true"), "{store:?}");
}

#[test]
fn a_path_that_is_or_crosses_a_file_is_refused_by_name() {
    let scratch = tempfile::tempdir().expect("a folder");
    let file = scratch.path().join("file");
    std::fs::write(&file, "x").expect("a file");
    for path in [file.clone(), file.join("below"), file.join("far/below")] {
        let text = refusal(path.to_str().expect("utf-8"));
        assert!(text.contains(&format!("`{}`, which is a file", file.display())), "{text}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_folder_that_cannot_be_made_is_an_io_error() {
    // `/proc` takes no folders, not even from root.
    match Store::from_url("/proc/tidewal/notes") {
        Err(Error::Io { operation: Operation::OpenStore, object, attempts: 1, .. }) => {
            assert_eq!(object, "/proc/tidewal/notes");
        }
        other => panic!("{other:?}"),
    }
}

#[cfg(unix)]
#[test]
fn a_read_only_parent_folder_is_an_io_error_unless_permissions_do_not_bind() {
    use std::os::unix::fs::PermissionsExt;
    let scratch = tempfile::tempdir().expect("a folder");
    std::fs::set_permissions(scratch.path(), std::fs::Permissions::from_mode(0o555)).expect("permissions");
    let opened = Store::from_url(scratch.path().join("new").to_str().expect("utf-8"));
    let binds = std::fs::write(scratch.path().join("probe"), "x").is_err();
    std::fs::set_permissions(scratch.path(), std::fs::Permissions::from_mode(0o755)).expect("permissions");
    match opened {
        Ok(_) => assert!(!binds),
        Err(Error::Io { operation: Operation::OpenStore, .. }) => assert!(binds),
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn what_a_url_may_not_carry_is_refused_and_not_repeated() {
    for (url, problem) in [
        ("s3://bucket/a?versionId=hush", "a query"),
        ("memory://a?hush", "a query"),
        ("file:///tmp/a#hush", "a fragment"),
        ("s3://me:hush@bucket/a", "credentials"),
        ("az://hush@account/a", "credentials"),
        ("s3://bucket:9000/a", "the port 9000"),
    ] {
        let text = refusal(url);
        assert!(text.contains(problem), "{text}");
        assert!(!text.contains("hush"), "{text}");
    }
}

#[test]
fn a_url_that_names_no_place_is_refused() {
    for (url, problem) in [
        ("", "found nothing"),
        ("ftp://host/a", "the scheme `ftp`"),
        ("s3:///a", "no bucket"),
        ("s3:/bucket/a", "no bucket"),
        ("gs://", "no bucket"),
        ("memory://", "no name"),
        ("file:notes", "no absolute path"),
        ("file://otherhost/notes", "no absolute path"),
        ("s3://bucket//a", "empty path segment"),
    ] {
        let text = refusal(url);
        assert!(text.contains(problem), "{url}: {text}");
    }
}

#[test]
fn a_path_with_a_colon_is_a_path() {
    for path in ["./s3:x", "a:b", "C:\\notes", "notes", "/var/a:b", "../x?y#z"] {
        assert_eq!(Place::parse(path).expect("a place"), Place::Folder(PathBuf::from(path)));
    }
}

#[test]
fn a_url_of_a_service_gives_bucket_and_folder() {
    for (url, service) in [("s3://b/x/y%20z", Service::S3), ("gs://b/x/y z/", Service::Google)] {
        let place = Place::Remote { service, bucket: "b".into(), root: Path::from("x/y z") };
        assert_eq!(Place::parse(url).expect("a place"), place);
    }
    let root = Place::Remote { service: Service::Azure, bucket: "c".into(), root: Path::default() };
    assert_eq!(Place::parse("AZ://c").expect("a place"), root);
}

#[test]
fn a_store_without_options_refuses_one_by_name() {
    let options = [("endpoint".to_owned(), "x".to_owned())];
    let error = Store::from_url_with_options("memory://options", options).expect_err("an option");
    assert!(error.to_string().contains("store option `endpoint`"), "{error}");
}

#[test]
fn a_given_store_counts_as_remote_until_said_otherwise() {
    let store = Store::new(Arc::new(InMemory::new()), "a/b");
    assert_eq!((store.kind(), store.root().as_ref()), (StoreKind::Remote, "a/b"));
    assert_eq!(store.with_kind(StoreKind::Local).kind(), StoreKind::Local);
}

#[test]
fn only_remote_stores_space_their_writes() {
    assert_eq!(StoreKind::Local.default_flush_interval(), Duration::ZERO);
    assert_eq!(StoreKind::Memory.default_flush_interval(), Duration::ZERO);
    assert_eq!(StoreKind::Remote.default_flush_interval(), Duration::from_millis(100));
}

#[cfg(not(all(feature = "aws", feature = "gcp", feature = "azure")))]
#[test]
fn a_store_whose_feature_is_off_names_the_feature() {
    for (url, feature, on) in [
        ("s3://b/a", "aws", cfg!(feature = "aws")),
        ("gs://b/a", "gcp", cfg!(feature = "gcp")),
        ("az://b/a", "azure", cfg!(feature = "azure")),
    ] {
        if !on {
            let text = refusal(url);
            assert!(text.contains(&format!("`--features {feature}`")), "{text}");
        }
    }
}

#[cfg(any(feature = "aws", feature = "gcp", feature = "azure"))]
mod remote_stores {
    use super::*;

    /// Enough for a client to be made, without asking anyone.
    fn options(url: &str) -> Vec<(String, String)> {
        let pairs: &[(&str, &str)] = match url.split(':').next() {
            Some("s3") => &[("REGION", "eu-west-1"), ("access_key_id", "hush"), ("aws_secret_access_key", "hush")],
            Some("gs") => &[("google_skip_signature", "true")],
            _ => &[("account_name", "acc"), ("account_key", "aHVzaA==")],
        };
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn urls() -> Vec<&'static str> {
        let all = [
            ("s3://b/a", cfg!(feature = "aws")),
            ("gs://b/a", cfg!(feature = "gcp")),
            ("az://b/a", cfg!(feature = "azure")),
        ];
        all.iter().filter(|(_, on)| *on).map(|(url, _)| *url).collect()
    }

    #[test]
    fn a_client_is_made_from_options_and_shows_no_secret() {
        for url in urls() {
            let store = Store::from_url_with_options(url, options(url)).expect("the store");
            assert_eq!((store.kind(), store.root().as_ref()), (StoreKind::Remote, "a"));
            let shown = format!("{store:?}");
            assert!(!shown.contains("hush") && !shown.contains("aHVzaA"), "{shown}");
        }
    }

    #[test]
    fn an_unknown_option_is_refused_by_name() {
        for url in urls() {
            let mut options = options(url);
            options.push(("endpiont".into(), "http://localhost".into()));
            let error = Store::from_url_with_options(url, options).expect_err("a misspelt key");
            assert!(error.to_string().contains("store option `endpiont`"), "{error}");
        }
    }

    #[test]
    fn a_bucket_beside_that_of_the_url_is_refused() {
        for url in urls() {
            let key = if url.starts_with("az") { "container_name" } else { "bucket" };
            let options = [(key.to_owned(), "other".to_owned())];
            let error = Store::from_url_with_options(url, options).expect_err("two buckets");
            assert!(error.to_string().contains(&format!("store option `{key}`")), "{error}");
        }
    }

    #[test]
    fn a_value_that_does_not_fit_is_refused_with_the_reason() {
        for url in urls() {
            let mut options = options(url);
            options.push(("allow_http".into(), "perhaps".into()));
            let error = Store::from_url_with_options(url, options).expect_err("not a yes or no");
            assert!(matches!(&error, Error::InvalidInput { found, .. } if found.contains("perhaps")), "{error}");
        }
    }
}
