SELECT a.id, a.at, a.by_whom, a.channel, a.verb, a.pipeline, a.run_id, a.made_run, a.bulk_id
  FROM ductwork_actions a WHERE a.run_id = $1 AND a.id < $2
 ORDER BY a.run_id DESC, a.id DESC LIMIT $3
