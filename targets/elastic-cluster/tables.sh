# shellcheck shell=bash
# The tables of an elastic cluster: pgbench's accounts, spread over its nodes by the hash of aid. Sourced by
# elastic-cluster.sh, whose settings it uses.

# node_tables PORT NUMBER: what one node is told, with postgres_fdw. Names are the same on each node, so that any one
# can be asked.
node_tables() {
    local port=$1 number=$2 other from
    echo "CREATE EXTENSION postgres_fdw;"
    echo "CREATE TABLE pgbench_accounts (aid int NOT NULL, bid int, abalance int, filler char(84))
          PARTITION BY HASH (aid);"
    for other in $(nodes); do
        from="FOR VALUES WITH (MODULUS $NODES, REMAINDER $((other - 1)))"
        if [ "$other" = "$number" ]; then
            echo "CREATE TABLE pgbench_accounts_$other PARTITION OF pgbench_accounts $from;"
            # PostgreSQL 15 cannot push an aggregate down to one partition of several; a view for each can be
            echo "CREATE VIEW pgbench_sums_$other WITH (security_invoker) AS
                  SELECT bid, sum(abalance) AS sum FROM pgbench_accounts_$other GROUP BY bid;"
        else
            echo "CREATE SERVER node$other FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '127.0.0.1',
                  port '$(node_port "$port" "$other")', dbname 'bench', async_capable 'true', fetch_size '10000');"
            echo "GRANT USAGE ON FOREIGN SERVER node$other TO bench;"
            echo "CREATE USER MAPPING FOR bench SERVER node$other
                  OPTIONS (user 'bench', password_required 'false');"
            echo "CREATE FOREIGN TABLE pgbench_accounts_$other PARTITION OF pgbench_accounts $from
                  SERVER node$other;"
            echo "CREATE FOREIGN TABLE pgbench_sums_$other (bid int, sum bigint) SERVER node$other;"
        fi
    done
    # the invoker's: the owner's mapping would mean a second set of connections between nodes
    echo "CREATE VIEW pgbench_sums WITH (security_invoker) AS"
    for other in $(nodes); do
        [ "$other" = 1 ] || echo "UNION ALL"
        echo "SELECT * FROM pgbench_sums_$other"
    done
    echo ";"
    echo "INSERT INTO pgbench_accounts_$number SELECT aid, (aid - 1) / 100000 + 1, 0, ''
          FROM generate_series(1, $SCALE * 100000) aid
          WHERE satisfies_hash_partition('pgbench_accounts'::regclass, $NODES, $((number - 1)), aid);"
    echo "ALTER TABLE pgbench_accounts_$number ADD PRIMARY KEY (aid);"
    if [ "$BID_INDEX" = 1 ]; then
        echo "CREATE INDEX ON pgbench_accounts_$number (bid) INCLUDE (abalance);"
    fi
    echo "GRANT SELECT, UPDATE ON ALL TABLES IN SCHEMA public TO bench;"
    echo "VACUUM ANALYZE pgbench_accounts_$number;"
}

# citus_tables PORT: what the first node is told where there is citus. Never run: see elastic-cluster.sh.
citus_tables() {
    local port=$1 other
    echo "SELECT citus_set_coordinator_host('127.0.0.1', $(node_port "$port" 1));"
    for other in $(nodes); do
        [ "$other" = 1 ] || echo "SELECT citus_add_node('127.0.0.1', $(node_port "$port" "$other"));"
    done
    # the coordinator keeps rows like the others
    echo "SELECT citus_set_node_property('127.0.0.1', $(node_port "$port" 1), 'shouldhaveshards', true);"
    echo "CREATE TABLE pgbench_accounts (aid int PRIMARY KEY, bid int, abalance int, filler char(84));"
    echo "SELECT create_distributed_table('pgbench_accounts', 'aid');"
    echo "INSERT INTO pgbench_accounts SELECT aid, (aid - 1) / 100000 + 1, 0, ''
          FROM generate_series(1, $SCALE * 100000) aid;"
    if [ "$BID_INDEX" = 1 ]; then
        echo "CREATE INDEX ON pgbench_accounts (bid) INCLUDE (abalance);"
    fi
    # it pushes sums down by itself
    echo "CREATE VIEW pgbench_sums AS SELECT bid, sum(abalance) AS sum FROM pgbench_accounts GROUP BY bid;"
    echo "GRANT SELECT, UPDATE ON ALL TABLES IN SCHEMA public TO bench;"
    echo "ANALYZE pgbench_accounts;"
}
