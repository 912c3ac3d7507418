//! What must a database hold before pgbench's own scripts can run? Their tables, created and filled as `pgbench -i -I
//! dtGvp` does it: by the server itself.

use std::io::Write as _;
use std::time::Duration;

use model::Target;
use postgres::{Client, NoTls, SimpleQueryMessage};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::cli::{RunArgs, SweepArgs};
use crate::experiment::checked_target;
use crate::{Failed, reach, sight, workload};

/// How long the server may take to let us in.
const PATIENCE: Duration = Duration::from_secs(10);
/// Rows for each step of the scale.
const TELLERS: u64 = 10;
const ACCOUNTS: u64 = 100_000;
/// From this scale on an account's number needs eight bytes.
const LARGE_SCALE: u64 = 20_000;
/// The columns of pgbench 15. The filler makes rows as long as those of TPC-B.
const TABLES: &str = "\
    DROP TABLE IF EXISTS pgbench_accounts, pgbench_branches, pgbench_history, pgbench_tellers;
    CREATE TABLE pgbench_history(tid int, bid int, aid AID, delta int, mtime timestamp, filler char(22));
    CREATE TABLE pgbench_tellers(tid int NOT NULL, bid int, tbalance int, filler char(84)) WITH (fillfactor=100);
    CREATE TABLE pgbench_accounts(aid AID NOT NULL, bid int, abalance int, filler char(84)) WITH (fillfactor=100);
    CREATE TABLE pgbench_branches(bid int NOT NULL, bbalance int, filler char(88)) WITH (fillfactor=100)";
const KEYS: &str = "\
    ALTER TABLE pgbench_branches ADD PRIMARY KEY (bid);
    ALTER TABLE pgbench_tellers ADD PRIMARY KEY (tid);
    ALTER TABLE pgbench_accounts ADD PRIMARY KEY (aid)";
/// Where the rows go in a cluster of Citus, as its documentation has it for pgbench.
const DISTRIBUTION: [(&str, &str); 4] = [
    ("pgbench_branches", "bid"),
    ("pgbench_tellers", "tid"),
    ("pgbench_accounts", "aid"),
    ("pgbench_history", "aid"),
];
const HAS_CITUS: &str = "SELECT count(*) FROM pg_extension WHERE extname = 'citus'";
const BRANCHES: &str = "SELECT count(*) FROM pgbench_branches";

/// Creates and fills the tables that `--init` asks for.
pub(crate) fn init(args: &SweepArgs) -> Result<(), Failed> {
    let [url] = &args.url[..] else {
        return Err(Failed::Usage("--init fills one database: give one URL".to_owned()));
    };
    let target = checked_target(url, &args.run.fail_if)?;
    workload::check_scheme(&target, "--init is")?;
    let scale = u64::from(args.workload.scale.unwrap_or(1));
    let mut database = Database::connect(&target, &args.run)?;
    let say = |line: &str| {
        if !args.run.quiet {
            let _ = writeln!(std::io::stderr(), "{line}");
        }
    };
    database.run(&TABLES.replace("AID", if scale >= LARGE_SCALE { "bigint" } else { "int" }))?;
    if database.count(HAS_CITUS)? > 0 {
        for (table, column) in DISTRIBUTION {
            database.run(&format!("SELECT create_distributed_table('{table}', '{column}')"))?;
        }
        say("pgbench's tables are created, and distributed by Citus");
    } else {
        say("pgbench's tables are created");
    }
    let (tellers, accounts) = (scale * TELLERS, scale * ACCOUNTS);
    database.run(&format!(
        "BEGIN;
         INSERT INTO pgbench_branches(bid, bbalance) SELECT bid, 0 FROM generate_series(1, {scale}) AS bid;
         INSERT INTO pgbench_tellers(tid, bid, tbalance)
             SELECT tid, (tid - 1) / {TELLERS} + 1, 0 FROM generate_series(1, {tellers}) AS tid;
         INSERT INTO pgbench_accounts(aid, bid, abalance, filler)
             SELECT aid, (aid - 1) / {ACCOUNTS} + 1, 0, '' FROM generate_series(1, {accounts}) AS aid;
         COMMIT"
    ))?;
    say(&format!("they are filled: {scale} branches, {tellers} tellers, {accounts} accounts"));
    for (table, _) in DISTRIBUTION {
        // it refuses to be one of several statements
        database.run(&format!("VACUUM ANALYZE {table}"))?;
    }
    database.run(KEYS)?;
    say("vacuumed, and their primary keys made");
    Ok(())
}

/// The scale at which the database of a target was filled.
pub(crate) fn scale(target: &Target, run: &RunArgs) -> Result<u64, Failed> {
    let scale = Database::connect(target, run)?.count(BRANCHES).map_err(|failed| {
        Failed::CannotRun(format!(
            "{failed}; --init makes the tables that --builtin needs, or say their size with --scale"
        ))
    })?;
    if scale == 0 {
        return Err(Failed::CannotRun("pgbench_branches is empty; --init fills it".to_owned()));
    }
    Ok(scale)
}

/// One session, before anything is measured. It asks by simple queries only, as a pooler may give each of them to
/// another session of the server.
struct Database {
    client: Client,
    shown: String,
}

impl Database {
    fn connect(target: &Target, run: &RunArgs) -> Result<Self, Failed> {
        let shown = target.authority();
        let cannot = |why: String| Failed::CannotRun(format!("cannot ask {shown}: {why}"));
        let addresses = reach::resolve(target, run.allow_public.as_deref())
            .map_err(|e| Failed::CannotRun(e.to_string()))?;
        let address = addresses.first().ok_or_else(|| cannot("it has no address".to_owned()))?;
        let mut config = Client::configure();
        config
            .host(&target.host)
            .hostaddr(address.ip())
            .port(target.port)
            .application_name("plimsoll")
            .connect_timeout(PATIENCE);
        if let Some(login) = &target.login {
            config.user(&login.user);
            if let Some(password) = &login.password {
                config.password(password.reveal());
            }
        }
        if let Some(database) = target.database() {
            config.dbname(&database);
        }
        let connected = match target.encrypted(run.sight.insecure) {
            None => config.ssl_mode(postgres::config::SslMode::Disable).connect(NoTls),
            Some(insecure) => {
                let authority = sight::authority(&run.sight)?;
                let tls = worker::trust::client(target, authority.as_deref(), insecure)?;
                let tls = MakeRustlsConnect::new((*tls.config).clone());
                config.ssl_mode(postgres::config::SslMode::Require).connect(tls)
            }
        };
        Ok(Self { client: connected.map_err(|e| cannot(words(&e)))?, shown })
    }

    fn run(&mut self, sql: &str) -> Result<(), Failed> {
        self.client.batch_execute(sql).map_err(|e| self.refused(&e))
    }

    /// The one number that a query answers with.
    fn count(&mut self, sql: &str) -> Result<u64, Failed> {
        let said = self.client.simple_query(sql).map_err(|e| self.refused(&e))?;
        let number = said.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0)?.parse().ok(),
            _ => None,
        });
        number.ok_or_else(|| Failed::CannotRun(format!("{} did not answer with a number: {sql}", self.shown)))
    }

    fn refused(&self, error: &postgres::Error) -> Failed {
        Failed::CannotRun(format!("{} refused: {}", self.shown, words(error)))
    }
}

/// The server's own words, where it was the server.
fn words(error: &postgres::Error) -> String {
    match error.as_db_error() {
        Some(said) => format!("{} {}: {}", said.severity(), said.code().code(), said.message()),
        None => std::iter::successors(Some(error as &dyn std::error::Error), |e| e.source())
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(": "),
    }
}
