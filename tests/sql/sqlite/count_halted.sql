SELECT count(*) AS looked, coalesce(sum(CASE WHEN x.successor IS NULL THEN 1 ELSE 0 END), 0) AS n FROM (
    SELECT (SELECT n.id FROM ductwork_runs n WHERE n.revived_from = r.id) AS successor
      FROM ductwork_runs r INDEXED BY ductwork_runs_others
     WHERE r.status <> 'completed' AND r.status = 'halted' AND r.pipeline = ?1
       AND r.id >= ?2 ORDER BY r.status DESC, r.id DESC LIMIT ?3) x
