SELECT id FROM ductwork_branches
 WHERE ready_at IS NOT NULL AND ready_at <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
   AND id NOT IN (SELECT x.id FROM (SELECT UNHEX(j.c0) AS id FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]')) AS j) AS x)
   AND (SELECT r.definition FROM ductwork_runs r WHERE r.id = ductwork_branches.run_id)
       NOT IN (SELECT a.digest FROM (SELECT j.c0 AS digest FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$[0]')) AS j) AS a)
 ORDER BY ready_at, id LIMIT ? FOR UPDATE SKIP LOCKED
