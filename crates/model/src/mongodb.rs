//! What does a MongoDB URL ask for? (MongoDB manual, "Connection Strings")

use crate::Target;
use crate::login::decoded;
use crate::target::{Scheme, TargetError};

/// What may stand behind the `?`.
const OPTIONS: &str = "authSource=DATABASE, authMechanism=SCRAM-SHA-256, tls=true, tls=false and directConnection=true: \
                       a connection of plimsoll is one connection, without a pool and without watching a cluster";

impl Target {
    /// The database whose users are asked about a MongoDB login; `None` if its name cannot be read.
    pub fn auth_source(&self) -> Option<String> {
        match self.query("authSource") {
            Some(name) => decoded(name),
            None if self.database_as_written().is_empty() => Some("admin".to_owned()),
            None => self.database(),
        }
    }

    /// Whether TLS comes before the protocol: the scheme says so, or a MongoDB URL does with `tls=true` or `ssl=true`.
    pub fn begins_with_tls(&self) -> bool {
        let last = self.options().filter_map(tls).last();
        self.scheme.is_tls() || self.scheme == Scheme::MongoDb && last == Some(true)
    }

    /// Refuses what would be done otherwise than the URL has it.
    pub(crate) fn check_mongodb(&self, whole: impl Fn() -> String) -> Result<(), TargetError> {
        if self.query("replicaSet").is_some() {
            return Err(TargetError::Cluster(whole()));
        }
        if let Some(bad) = self.options().find(|option| !is_known(option)) {
            return Err(TargetError::BadOption(whole(), bad.to_owned(), OPTIONS));
        }
        match (self.database(), self.auth_source()) {
            (Some(_), Some(_)) => Ok(()),
            _ => Err(TargetError::BadEscape(whole())),
        }
    }
}

fn is_known(option: &str) -> bool {
    let asked = ["directConnection=true", "authMechanism=SCRAM-SHA-256"];
    tls(option).is_some() || asked.contains(&option) || option.starts_with("authSource=")
}

/// What an option says of TLS.
fn tls(option: &str) -> Option<bool> {
    match option {
        "tls=true" | "ssl=true" => Some(true),
        "tls=false" | "ssl=false" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_a_user_is_known_and_what_is_asked_there() {
        let of = |url: &str| {
            let target = Target::parse(url).unwrap();
            assert_eq!(target.port, 27017);
            (target.auth_source().unwrap(), target.database().unwrap(), target.begins_with_tls())
        };
        let is = |source: &str, database: &str, tls| (source.to_owned(), database.to_owned(), tls);
        assert_eq!(of("mongodb://h"), is("admin", "test", false));
        assert_eq!(of("mongodb://u:p@h/sho%70"), is("shop", "shop", false));
        assert_eq!(of("mongodb://u:p@h/?authSource=users%21&tls=true"), is("users!", "test", true));
        assert_eq!(
            of("mongodb://u:p@h/shop?ssl=true&directConnection=true&authSource=admin"),
            is("admin", "shop", true)
        );
        assert_eq!(
            of("mongodb://h?tls=true&authMechanism=SCRAM-SHA-256&tls=false"),
            is("admin", "test", false)
        );
    }

    #[test]
    fn what_is_not_done_is_refused() {
        let says = |url: &str| Target::parse(url).unwrap_err().to_string();
        for cluster in [
            "mongodb://u:secret@a:27017,b:27018/shop",
            "mongodb://a,b",
            "mongodb+srv://u:sec/ret@cluster.example/shop",
            "mongodb://a/?replicaSet=rs0",
        ] {
            let said = says(cluster);
            assert!(said.contains("mongodb://USER:PASSWORD@HOST:PORT") && !said.contains("sec"), "{said}");
        }
        for option in ["maxPoolSize=9", "authMechanism=PLAIN", "tls=yes", "w=majority"] {
            let said = says(&format!("mongodb://u:secret@h/?{option}"));
            assert!(said.contains(&format!("asks for {option:?}")) && said.contains("tls=true"), "{said}");
            assert!(!said.contains("secret"), "{said}");
        }
        assert!(says("mongodb://h/%zz").contains("%25"));
        assert!(says("mongodb://h/?authSource=%ff").contains("%25"));
    }
}
