SELECT substr(a.by_whom, 1, 1000) AS by_whom FROM ductwork_actions a
 WHERE a.run_id = ? AND a.verb = 'cancel' ORDER BY a.run_id, a.id LIMIT 1
