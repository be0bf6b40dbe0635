SELECT 'branch' AS entity, branch_id AS id, 'has ' || count(*) || ' open transitions' AS detail
  FROM ductwork_transitions WHERE completed_at IS NULL
 GROUP BY branch_id HAVING count(*) > 1
UNION ALL
SELECT 'step', from_step_id, 'was left ' || count(*) || ' times'
  FROM ductwork_transitions
 GROUP BY from_step_id HAVING count(*) > 1
 LIMIT ?1
