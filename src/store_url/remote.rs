//! Stores behind a service. Each is compiled in by its cargo feature.

#![cfg_attr(
    not(any(feature = "aws", feature = "gcp", feature = "azure")),
    expect(unused_variables, reason = "all are off")
)]

use std::sync::Arc;

use object_store::ObjectStore;

use super::Service;
use crate::error::Result;

pub(super) fn open(service: Service, bucket: &str, options: &[(String, String)]) -> Result<Arc<dyn ObjectStore>> {
    match service {
        #[cfg(feature = "aws")]
        Service::S3 => clients::s3(bucket, options),
        #[cfg(feature = "gcp")]
        Service::Google => clients::google(bucket, options),
        #[cfg(feature = "azure")]
        Service::Azure => clients::azure(bucket, options),
        #[cfg(not(feature = "aws"))]
        Service::S3 => Err(feature_off("s3", "aws", bucket)),
        #[cfg(not(feature = "gcp"))]
        Service::Google => Err(feature_off("gs", "gcp", bucket)),
        #[cfg(not(feature = "azure"))]
        Service::Azure => Err(feature_off("az", "azure", bucket)),
    }
}

#[cfg(not(all(feature = "aws", feature = "gcp", feature = "azure")))]
fn feature_off(scheme: &str, feature: &str, bucket: &str) -> crate::error::Error {
    crate::error::Error::invalid(
        format!("store URL `{scheme}://{bucket}`"),
        format!("a build without the cargo feature `{feature}`"),
        format!("a build with it: `tidewal = {{ features = [\"{feature}\"], .. }}` or `--features {feature}`"),
    )
}

#[cfg(any(feature = "aws", feature = "gcp", feature = "azure"))]
mod clients {
    use std::str::FromStr;
    use std::sync::Arc;
    use std::sync::Once;

    use object_store::ObjectStore;

    use crate::error::{Error, Result};

    #[cfg(feature = "aws")]
    pub(super) fn s3(bucket: &str, options: &[(String, String)]) -> Result<Arc<dyn ObjectStore>> {
        use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
        install_tls();
        let options = parse_options(options, &AmazonS3ConfigKey::Bucket)?;
        let builder = AmazonS3Builder::from_env().with_bucket_name(bucket);
        let builder = options.into_iter().fold(builder, |builder, (key, value)| builder.with_config(key, value));
        built("s3", bucket, builder.build())
    }

    #[cfg(feature = "gcp")]
    pub(super) fn google(bucket: &str, options: &[(String, String)]) -> Result<Arc<dyn ObjectStore>> {
        use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
        install_tls();
        let options = parse_options(options, &GoogleConfigKey::Bucket)?;
        let builder = GoogleCloudStorageBuilder::from_env().with_bucket_name(bucket);
        let builder = options.into_iter().fold(builder, |builder, (key, value)| builder.with_config(key, value));
        built("gs", bucket, builder.build())
    }

    #[cfg(feature = "azure")]
    pub(super) fn azure(container: &str, options: &[(String, String)]) -> Result<Arc<dyn ObjectStore>> {
        use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
        install_tls();
        let options = parse_options(options, &AzureConfigKey::ContainerName)?;
        let builder = MicrosoftAzureBuilder::from_env().with_container_name(container);
        let builder = options.into_iter().fold(builder, |builder, (key, value)| builder.with_config(key, value));
        built("az", container, builder.build())
    }

    /// The store's own builders skip what they do not know, and a misspelt `endpoint` would
    /// send the rows somewhere else.
    fn parse_options<K: FromStr + PartialEq>(options: &[(String, String)], place: &K) -> Result<Vec<(K, String)>> {
        let parse = |(name, value): &(String, String)| {
            let subject = format!("store option `{name}`");
            match name.to_ascii_lowercase().parse::<K>() {
                Ok(key) if key == *place => {
                    Err(Error::invalid(subject, "a bucket beside that of the URL", "the URL alone to name it"))
                }
                Ok(key) => Ok((key, value.clone())),
                Err(_) => Err(Error::invalid(
                    subject,
                    "a key this store does not have",
                    "a key of its client, such as `endpoint`, `allow_http` or `timeout`; see the `object_store` crate",
                )),
            }
        };
        options.iter().map(parse).collect()
    }

    /// Values are checked, and files of credentials read, when the client is built.
    fn built<S: ObjectStore>(
        scheme: &str,
        bucket: &str,
        built: object_store::Result<S>,
    ) -> Result<Arc<dyn ObjectStore>> {
        match built {
            Ok(store) => Ok(Arc::new(store)),
            Err(error) => Err(Error::invalid(
                format!("store URL `{scheme}://{bucket}`"),
                error.to_string(),
                "options and environment variables that make a client",
            )),
        }
    }

    /// The client has TLS without cryptography of its own, and panics where the process has
    /// none either.
    fn install_tls() {
        static INSTALLED: Once = Once::new();
        INSTALLED.call_once(|| {
            // Refused only if the process chose one before us, which is as good.
            let _ = rustls::crypto::ring::default_provider().install_default();
        });
    }
}
