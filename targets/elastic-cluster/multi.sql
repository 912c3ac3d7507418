-- the rows of one branch, which are on all nodes; they are summed up where the client is
\set bid random(1, :scale)
BEGIN;
SELECT sum(abalance) FROM pgbench_accounts WHERE bid = :bid;
END;
