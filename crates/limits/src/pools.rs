//! How is a pool told what to do? The settings of the pools that are in common use, with their values.

use model::Scheme;

/// What a pool is to be told; `None`: nothing of the kind.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Values {
    pub(crate) min: Option<u64>,
    pub(crate) max: Option<u64>,
    pub(crate) idle_seconds: Option<f64>,
}

/// Lines for the pools of a protocol's clients, ready to be pasted; the first is the one of the library that was run.
pub(crate) fn lines(scheme: Scheme, values: Values) -> Vec<String> {
    match scheme.plain() {
        Scheme::MongoDb => vec![
            "# in the URI of any MongoDB driver:".to_owned(),
            joined(values, ["minPoolSize=", "maxPoolSize=", "maxIdleTimeMS="], milliseconds, "&"),
        ],
        Scheme::Postgres => [
            vec!["# HikariCP:".to_owned()],
            vec![joined(values, ["minimumIdle=", "maximumPoolSize=", "idleTimeout="], milliseconds, " ")],
            vec!["# pgx, in its connection string:".to_owned()],
            vec![joined(
                values,
                ["pool_min_conns=", "pool_max_conns=", "pool_max_conn_idle_time="],
                |s| format!("{}s", s.ceil()),
                " ",
            )],
            rust(values),
            vec!["# node-postgres:".to_owned()],
            vec![format!(
                "new Pool({{ {} }})",
                joined(values, ["min: ", "max: ", "idleTimeoutMillis: "], milliseconds, ", ")
            )],
        ]
        .concat(),
        Scheme::Redis => [
            rust(values),
            vec!["# Jedis and Lettuce (commons-pool2):".to_owned()],
            vec![closed(
                values,
                ["setMinIdle(", "setMaxTotal(", "setMinEvictableIdleDuration(ofMillis("],
                ";",
            )],
        ]
        .concat(),
        _ => vec![
            "# reqwest and hyper-util:".to_owned(),
            joined(
                Values { min: None, ..values },
                ["", ".pool_max_idle_per_host(", ".pool_idle_timeout(Duration::from_secs("],
                |s| format!("{})", s.ceil()),
                ")",
            ) + ")",
            "# Go net/http:".to_owned(),
            joined(
                Values { min: None, ..values },
                ["", "MaxIdleConnsPerHost: ", "IdleConnTimeout: "],
                |s| format!("{} * time.Second", s.ceil()),
                ", ",
            ),
        ],
    }
}

fn rust(values: Values) -> Vec<String> {
    let seconds = |s: f64| format!("Duration::from_secs({})", s.ceil());
    let call = |names| joined(values, names, seconds, ")") + ")";
    vec![
        "# bb8:".to_owned(),
        call([".min_idle(", ".max_size(", ".idle_timeout("]),
        "# sqlx:".to_owned(),
        call([".min_connections(", ".max_connections(", ".idle_timeout("]),
    ]
}

fn milliseconds(seconds: f64) -> String {
    (seconds * 1e3).ceil().to_string()
}

/// Each value behind its name.
fn joined(values: Values, names: [&str; 3], idle: impl Fn(f64) -> String, between: &str) -> String {
    let each = [
        values.min.map(|n| format!("{}{n}", names[0])),
        values.max.map(|n| format!("{}{n}", names[1])),
        values.idle_seconds.map(|s| format!("{}{}", names[2], idle(s))),
    ];
    each.into_iter().flatten().collect::<Vec<_>>().join(between)
}

/// Each value as a call of its own.
fn closed(values: Values, names: [&str; 3], end: &str) -> String {
    joined(values, names, |s| format!("{})", milliseconds(s)), &format!("){end} ")) + ")" + end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pool_in_its_own_words() {
        let values = Values { min: Some(10), max: Some(50), idle_seconds: Some(70.0) };
        let of = |scheme| lines(scheme, values).join("\n");
        assert!(of(Scheme::MongoDb).ends_with("minPoolSize=10&maxPoolSize=50&maxIdleTimeMS=70000"));
        let postgres = of(Scheme::Postgres);
        for line in [
            "minimumIdle=10 maximumPoolSize=50 idleTimeout=70000",
            "pool_min_conns=10 pool_max_conns=50 pool_max_conn_idle_time=70s",
            ".min_idle(10).max_size(50).idle_timeout(Duration::from_secs(70))",
            ".min_connections(10).max_connections(50).idle_timeout(Duration::from_secs(70))",
            "new Pool({ min: 10, max: 50, idleTimeoutMillis: 70000 })",
        ] {
            assert!(postgres.contains(line), "{postgres}");
        }
        let redis = of(Scheme::Rediss);
        assert!(
            redis.contains("setMinIdle(10); setMaxTotal(50); setMinEvictableIdleDuration(ofMillis(70000));"),
            "{redis}"
        );
        let http = of(Scheme::Http);
        assert!(
            http.contains(".pool_max_idle_per_host(50).pool_idle_timeout(Duration::from_secs(70))"),
            "{http}"
        );
        assert!(http.contains("MaxIdleConnsPerHost: 50, IdleConnTimeout: 70 * time.Second"), "{http}");
        let one = lines(Scheme::Postgres, Values { max: Some(7), ..Values::default() });
        assert_eq!(one[1], "maximumPoolSize=7");
        assert_eq!(one[5], ".max_size(7)");
    }
}
