SELECT b.id AS run_id, w.reason AS halt_reason
  FROM (SELECT UNHEX(j.c0) AS id FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]')) AS j) AS b STRAIGHT_JOIN (SELECT j.c0 AS reason FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$[0]')) AS j) AS w
 WHERE (SELECT 1 FROM ductwork_branches br FORCE INDEX (ductwork_branches_reasons)
         WHERE br.run_id = b.id AND br.halt_reason = w.reason LIMIT 1) = 1
UNION
SELECT x.run_id, x.halt_reason
  FROM (SELECT b.id AS run_id,
               (SELECT br.halt_reason FROM ductwork_branches br FORCE INDEX (ductwork_branches_reasons)
                 WHERE br.run_id = b.id
                 ORDER BY br.run_id DESC, br.halt_reason DESC LIMIT 1) AS halt_reason
          FROM (SELECT UNHEX(j.c0) AS id FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]')) AS j) AS b) x
 WHERE x.halt_reason IS NOT NULL
 ORDER BY run_id, halt_reason;
