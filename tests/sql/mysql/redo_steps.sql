INSERT INTO ductwork_steps
    (id, run_id, branch_id, ordinal, node, step, via, status, input, created_at)
SELECT UNHEX(CONCAT(LEFT(HEX(CAST(? AS binary(16))), 16), SUBSTR(HEX(s.id), 17))), ?, UNHEX(CONCAT(LEFT(HEX(CAST(? AS binary(16))), 16), SUBSTR(HEX(s.branch_id), 17))), s.ordinal, s.node, s.step, s.via,
       b.status, s.input, ?
  FROM (SELECT UNHEX(j.c0) AS id, j.c1 AS status FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]', c1 longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$[1]')) AS j) AS b
  JOIN ductwork_steps s ON s.id = b.id
