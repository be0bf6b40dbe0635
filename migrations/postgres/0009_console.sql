-- A console is a process as well. The existing rows have one of the earlier roles, so they are not checked, which
-- would wait for locks on them.
ALTER DOMAIN ductwork_process_role DROP CONSTRAINT ductwork_process_role_check;
ALTER DOMAIN ductwork_process_role ADD CONSTRAINT ductwork_process_role_check CHECK (VALUE IN
    ('supervisor', 'advancer', 'worker', 'console')) NOT VALID;
