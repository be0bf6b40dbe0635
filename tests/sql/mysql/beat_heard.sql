SELECT p.paused,
       EXISTS (SELECT 1 FROM ductwork_processes o
                WHERE o.boot_id <> p.boot_id OR o.pid_namespace <> p.pid_namespace) AS elsewhere
  FROM ductwork_processes p WHERE p.id = ? AND p.epoch < 4294967296
