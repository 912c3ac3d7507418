-- the same, summed up on each node: pushed down, as clusters do that are more than a stand-in
\set bid random(1, :scale)
BEGIN;
SELECT sum(sum) FROM pgbench_sums WHERE bid = :bid;
END;
