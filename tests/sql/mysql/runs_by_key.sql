SELECT r.id, r.trigger_key, r.pruning_at, CASE WHEN octet_length(r.input) <= b.size THEN r.input END AS input
  FROM (SELECT j.c0 AS trigger_key, j.c1 AS size FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$[0]', c1 bigint PATH '$[1]')) AS j) AS b
  JOIN ductwork_runs r FORCE INDEX (ductwork_runs_trigger_key)
    ON r.pipeline = ? AND r.trigger_key = b.trigger_key AND r.keyed = ?
