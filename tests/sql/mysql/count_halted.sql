SELECT count(*) AS looked, coalesce(sum(CASE WHEN x.successor IS NULL THEN 1 ELSE 0 END), 0) AS n FROM (
    SELECT (SELECT n.id FROM ductwork_runs n WHERE n.revived_from = r.id) AS successor
      FROM ductwork_runs r FORCE INDEX (ductwork_runs_others)
     WHERE r.status <> 'completed' AND r.status = 'halted' AND r.pipeline = ?
       AND r.id >= ? ORDER BY r.status DESC, r.id DESC LIMIT ?) x
