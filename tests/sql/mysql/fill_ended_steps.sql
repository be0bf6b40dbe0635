INSERT INTO ductwork_steps
    (id, run_id, branch_id, ordinal, node, step, via, transition_id, status, input, output,
     created_at, completed_at)
SELECT UNHEX(CONCAT(LPAD(HEX(CAST(? AS SIGNED)), 12, '0'), '70038', LPAD(HEX(CAST(n * ? + b.place AS SIGNED)), 15, '0'))), UNHEX(CONCAT(LPAD(HEX(CAST(? AS SIGNED)), 12, '0'), '70018', LPAD(HEX(CAST(n AS SIGNED)), 15, '0'))), UNHEX(CONCAT(LPAD(HEX(CAST(? AS SIGNED)), 12, '0'), '70028', LPAD(HEX(CAST(n AS SIGNED)), 15, '0'))), b.place, b.node, b.step, b.via,
       CASE WHEN b.place > 0 THEN UNHEX(CONCAT(LPAD(HEX(CAST(? AS SIGNED)), 12, '0'), '70058', LPAD(HEX(CAST(n * ? + b.place - 1 AS SIGNED)), 15, '0'))) END,
       'completed', 'null', 'null', TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
  FROM (WITH RECURSIVE numbers(n) AS (SELECT CAST(? AS SIGNED) UNION ALL SELECT n + 1 FROM numbers WHERE n < ?) SELECT n FROM numbers) AS series CROSS JOIN (SELECT j.c0 AS place, j.c1 AS node, j.c2 AS step, j.c3 AS via FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 bigint PATH '$[0]', c1 longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$[1]', c2 longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$[2]', c3 longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$[3]')) AS j) AS b
