-- A console is a process as well.
ALTER TABLE ductwork_processes DROP CONSTRAINT ductwork_processes_role, ADD CONSTRAINT ductwork_processes_role CHECK (role IN
    ('supervisor', 'advancer', 'worker', 'console'));
