INSERT INTO ductwork_steps
    (id, run_id, branch_id, ordinal, node, step, via, transition_id, status, input, created_at)
SELECT b.id, b.run_id, b.branch_id, b.ordinal, b.node, b.step, b.via, b.transition_id, b.status,
       (SELECT CONCAT('[', coalesce(group_concat(coalesce(c.output, s.output) ORDER BY c.ordinal SEPARATOR ','), ''), ']')
          FROM ductwork_branches c FORCE INDEX (ductwork_branches_places)
          JOIN ductwork_steps s ON s.id = c.step_id
         WHERE c.fan_out_id = b.from_id), TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
  FROM (SELECT UNHEX(j.c0) AS id, UNHEX(j.c1) AS run_id, UNHEX(j.c2) AS branch_id, j.c3 AS ordinal, j.c4 AS node, j.c5 AS step, j.c6 AS via, UNHEX(j.c7) AS transition_id, j.c8 AS status, UNHEX(j.c9) AS from_id FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]', c1 char(32) PATH '$[1]', c2 char(32) PATH '$[2]', c3 bigint PATH '$[3]', c4 longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$[4]', c5 longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$[5]', c6 longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$[6]', c7 char(32) PATH '$[7]', c8 longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$[8]', c9 char(32) PATH '$[9]')) AS j) AS b
