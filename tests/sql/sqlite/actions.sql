SELECT a.id, a.at, a.by_whom, a.channel, a.verb, a.pipeline, a.run_id, a.made_run, a.bulk_id
  FROM ductwork_actions a WHERE a.id < ?1 ORDER BY a.id DESC LIMIT ?2
