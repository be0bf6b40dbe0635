-- A console is a process as well. The rows that are there have one of the roles before it, so nobody's lock
-- on them is waited for to look.
ALTER DOMAIN ductwork_process_role DROP CONSTRAINT ductwork_process_role_check;
ALTER DOMAIN ductwork_process_role ADD CONSTRAINT ductwork_process_role_check CHECK (VALUE IN
    ('supervisor', 'advancer', 'worker', 'console')) NOT VALID;
