WITH RECURSIVE reasons (run_id, halt_reason) AS (
    SELECT b.id, (SELECT min(br.halt_reason) FROM ductwork_branches br
                   WHERE br.run_id = b.id AND br.halt_reason IS NOT NULL)
      FROM (SELECT UNHEX(j.c0) AS id FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]')) AS j) AS b
    UNION ALL
    SELECT n.run_id, (SELECT min(br.halt_reason) FROM ductwork_branches br
                       WHERE br.run_id = n.run_id AND br.halt_reason IS NOT NULL
                         AND br.halt_reason > n.halt_reason)
      FROM reasons n WHERE n.halt_reason IS NOT NULL)
SELECT n.run_id, n.halt_reason FROM reasons n
 WHERE n.halt_reason IS NOT NULL ORDER BY n.run_id, n.halt_reason
