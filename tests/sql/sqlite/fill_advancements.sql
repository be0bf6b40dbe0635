INSERT INTO ductwork_advancements
    (id, transition_id, branch_id, process_id, claim_token, claimed_at, lease_until, completed_at, result)
SELECT unhex(printf('%012x70068%015x', ?1, n)), unhex(printf('%012x70058%015x', ?1, n)), unhex(printf('%012x70028%015x', ?1, (n - n % ?2) / ?2)), ?3, unhex(printf('%012x70078%015x', ?1, n)), CAST(unixepoch('subsec') * 1000000 AS INTEGER), CAST(unixepoch('subsec') * 1000000 AS INTEGER), CAST(unixepoch('subsec') * 1000000 AS INTEGER), 'success'
  FROM (WITH RECURSIVE numbers(n) AS (SELECT ?4 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?5) SELECT n FROM numbers) AS series
