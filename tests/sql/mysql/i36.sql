WITH found AS (
        SELECT 'bulk action' AS entity, k.id, 'counts fewer runs than none' AS detail
          FROM ductwork_bulks k WHERE k.done < 0 OR k.skipped < 0 OR k.failed < 0
        UNION ALL
        SELECT 'bulk action', k.id, 'was stopped, but has not ended'
          FROM ductwork_bulks k WHERE k.stopped_by IS NOT NULL AND k.ended_at IS NULL
        UNION ALL
        SELECT 'bulk action', k.id, 'has changed ' || x.n || ' runs, but counts ' || k.done
          FROM (SELECT a.bulk_id, count(*) AS n FROM ductwork_actions a
                 WHERE a.bulk_id IS NOT NULL GROUP BY a.bulk_id) x
          JOIN ductwork_bulks k ON k.id = x.bulk_id
         WHERE x.n > k.done
        UNION ALL
        SELECT 'run', a.run_id, 'was changed ' || count(*) || ' times by one bulk action'
          FROM ductwork_actions a WHERE a.bulk_id IS NOT NULL
         GROUP BY a.bulk_id, a.run_id HAVING count(*) > 1) SELECT * FROM found LIMIT ?
