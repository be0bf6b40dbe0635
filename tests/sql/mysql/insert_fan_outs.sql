INSERT INTO ductwork_fan_outs
    (id, run_id, branch_id, node, via, width, parent_fan_out_id, parent_ordinal, created_at)
SELECT b.id, b.run_id, b.branch_id, b.node, b.via, b.width, b.parent_id, b.parent_ordinal, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
  FROM (SELECT UNHEX(j.c0) AS id, UNHEX(j.c1) AS run_id, UNHEX(j.c2) AS branch_id, j.c3 AS node, j.c4 AS via, j.c5 AS width, UNHEX(j.c6) AS parent_id, j.c7 AS parent_ordinal FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]', c1 char(32) PATH '$[1]', c2 char(32) PATH '$[2]', c3 longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$[3]', c4 longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$[4]', c5 bigint PATH '$[5]', c6 char(32) PATH '$[6]', c7 bigint PATH '$[7]')) AS j) AS b
