# shellcheck shell=bash
# A server of MariaDB or MySQL in a directory of its own: scripts/mariadb, scripts/mysql and scripts/galera source
# this. Its programs are Debian's packages, unpacked into target/ and never installed: no script of a package runs,
# and no service, file or server of the machine is touched (packages.sh). A server directory holds:
#
#   flavour      which server it is: mariadb-bookworm, mariadb-trixie or mysql-sid
#   my.cnf       its configuration, rewritten at each start; with the password, for root's client
#   password     of the users ductwork and root
#   port, pid    of the server
#   mysql.sock   its Unix socket
#   tls/         ca.pem; server.pem and client.pem with their keys
#   data/, tmp/, server.log

script=scripts/${0##*/}
# The project's paths are valid whoever runs the script; everybody may read the packages.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
umask 022
unset MYSQL_HOST MYSQL_TCP_PORT MYSQL_UNIX_PORT MYSQL_PWD MYSQL_HOME

# The seconds within which a server must answer, and must stop; a machine may be busy.
start_limit=120
stop_limit=60
instead='or set DUCTWORK_TEST_MYSQL_URL to the server to test against'

die() {
  printf '%s: %s\n' "$script" "$1" >&2
  exit 1
}

. "$root/scripts/mysql.d/packages.sh"

# --- the user that it runs as

# Root hands the server to another user, as PostgreSQL demands: a client with all privileges could otherwise write any
# file. That user is not mysql, which owns the files of a server of the machine.
owner() {
  [ "$(id -u)" -ne 0 ] || echo nobody
}

# Fills the array `as` with the prefix of the server's commands.
set_as() {
  local user
  user=$(owner)
  as=()
  if [ -n "$user" ]; then
    # Unlike su and runuser, setpriv starts no session, stays the same process and leaves the environment alone.
    as=(setpriv --reuid "$user" --regid "$(id -g "$user")" --clear-groups)
  fi
}

check_readable() {
  "${as[@]}" test -x "$2/base/bin/$(daemon_of "$1")" ||
    die "the user $(owner) cannot read $2: set CARGO_TARGET_DIR to a directory that everybody can read"
}

give_to_owner() {
  local user
  user=$(owner)
  [ -z "$user" ] || chown -R "$user:$(id -g "$user")" "$1"
}

# The data that a server begins with: root without a password and no other user. It is made once, in seconds, and every
# server gets a copy.
make_first_data() {
  local flavour=$1 tree=$2 new=$2/data.new
  rm -rf -- "$new"
  mkdir "$new"
  {
    echo '[mysqld]'
    paths "$tree"
    printf 'datadir = %s\ntmpdir = %s\nsocket = %s/mysql.sock\n' "$new" "$new" "$new"
    sizes "$flavour"
    # There is nothing yet that could be lost.
    echo 'innodb_flush_log_at_trx_commit = 0'
  } >"$tree/data.cnf"
  give_to_owner "$new"
  if [ "$(daemon_of "$flavour")" = mysqld ]; then
    # It requires an empty directory, so no temporary files may be in it.
    sed -i '/^tmpdir/d' "$tree/data.cnf"
    "${as[@]}" "$tree/base/bin/mysqld" --defaults-file="$tree/data.cnf" --initialize-insecure </dev/null || return 1
    # Each server generates its own name and keys.
    rm -f "$new/auto.cnf" "$new"/*.pem
  else
    mariadb_tables "$tree" | "${as[@]}" "$tree/base/bin/mariadbd" --defaults-file="$tree/data.cnf" --bootstrap \
      --wsrep-on=OFF --enforce-storage-engine= --net-buffer-length=16K || return 1
  fi
  [ -d "$new/mysql" ] || return 1
  chown -R "$(id -u):$(id -g)" "$new" && cp -r --sparse=always "$new" "$tree/data" &&
    chmod -R a+rX "$tree/data" && rm -rf -- "$new"
}

# Like mariadb-install-db, which would look for its programs in directories of the machine.
mariadb_tables() {
  local share part file
  share=$(share_of "$1")
  printf 'CREATE DATABASE mysql;\nUSE mysql;\nSET @auth_root_socket=NULL;\n'
  for part in system_tables performance_tables system_tables_data gis sys_schema; do
    for file in "$share"/m{ysql,ariadb,aria_add}_"$part"{,_sp_bootstrap}.sql; do
      [ ! -e "$file" ] || cat "$file"
    done
  done
  cat <<'SQL'
DELETE FROM mysql.global_priv WHERE User = 'root' AND Host <> 'localhost';
DELETE FROM mysql.proxies_priv WHERE Host <> 'localhost';
SQL
}

# The requested flavour of MariaDB.
mariadb_flavour() {
  local release=${DUCTWORK_MARIADB_RELEASE:-bookworm}
  case $release in
    bookworm | trixie) echo "mariadb-$release" ;;
    *) die "DUCTWORK_MARIADB_RELEASE is $release: it can be bookworm or trixie" ;;
  esac
}

share_of() {
  local share=$1/usr/share/mariadb
  [ -d "$share/charsets" ] || share=$1/usr/share/mysql
  printf '%s\n' "$share"
}

# Settings for the locations of a tree's parts.
paths() {
  local share
  share=$(share_of "$1")
  printf 'basedir = %s\nplugin_dir = %s\nlc_messages_dir = %s\ncharacter_sets_dir = %s\n' \
    "$1/base" "$1/usr/lib/mysql/plugin" "$share" "$share/charsets"
}

# Settings of the redo log, with which the data are made: it holds ten of the largest payloads and more.
sizes() {
  case $1 in
    mysql-*) printf 'innodb_redo_log_capacity = 256M\nmysqlx = OFF\n' ;;
    *) printf 'innodb_log_file_size = 256M\n' ;;
  esac
}

# --- one server

# The full path of a directory, after checking that it can contain a server's files.
whole() {
  local dir
  dir=$(realpath -m -- "$1")
  [[ $dir =~ ^/[A-Za-z0-9/._@+-]+$ ]] || die "$dir has a character that the server's configuration cannot have: choose another DIR"
  # The path of a Unix socket has 107 bytes.
  [ ${#dir} -le 85 ] || die "the path $dir is too long for a Unix socket: choose a shorter DIR"
  printf '%s\n' "$dir"
}

flavour_of() {
  [ -e "$1/flavour" ] || die "$1 holds no server"
  cat "$1/flavour"
}

daemon_of() {
  case $1 in
    mysql-*) echo mysqld ;;
    *) echo mariadbd ;;
  esac
}

client_of() {
  case $1 in
    mysql-*) echo mysql ;;
    *) echo mariadb ;;
  esac
}

make_certificates() {
  local tls=$1/tls openssl=$2/base/bin/openssl name
  mkdir "$tls"
  cat >"$tls/openssl.cnf" <<'CONF'
[req]
distinguished_name = name
[name]
[ca]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[server]
basicConstraints = CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth
subjectAltName = IP:127.0.0.1, DNS:localhost
[client]
basicConstraints = CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = clientAuth
CONF
  local request=(req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 -config "$tls/openssl.cnf")
  "$openssl" "${request[@]}" -extensions ca -subj '/CN=Ductwork test CA' -keyout "$tls/ca.key" -out "$tls/ca.pem" || return 1
  for name in server client; do
    "$openssl" "${request[@]}" -extensions "$name" -subj "/CN=ductwork-test-$name" -CA "$tls/ca.pem" -CAkey "$tls/ca.key" \
      -keyout "$tls/$name.key" -out "$tls/$name.pem" || return 1
  done
}

# A real server: every setting whose effect a crash would show is as in production. Galera's part is in DIR/galera.cnf.
configure() {
  local dir=$1 tree=$2 flavour=$3
  # With its own mask: the file contains the password.
  (
    umask 077
    {
      cat <<CONF
[client]
user = root
password = $(cat "$dir/password")
socket = $dir/mysql.sock
[mysqld]
CONF
      paths "$tree"
      sizes "$flavour"
      cat <<CONF
datadir = $dir/data
tmpdir = $dir/tmp
secure_file_priv = $dir/tmp
socket = $dir/mysql.sock
pid_file = $dir/data/server.pid
bind_address = 127.0.0.1
skip_name_resolve = ON
max_connections = 300
max_allowed_packet = 64M
innodb_flush_log_at_trx_commit = 1
sync_binlog = 1
ssl_ca = $dir/tls/ca.pem
ssl_cert = $dir/tls/server.pem
ssl_key = $dir/tls/server.key
CONF
      if [ -e "$dir/galera.cnf" ]; then
        cat "$dir/galera.cnf"
      else
        echo 'innodb_buffer_pool_size = 512M'
      fi
    } >"$dir/my.cnf"
  )
  give_to_owner "$dir/my.cnf"
}

# The users: one that may do everything, because the tests create databases and users, and root. The server runs this
# at its first start, before it answers any client; each statement has its own line.
first_statements() {
  local password
  password=$(cat "$1/password")
  cat <<SQL
CREATE USER IF NOT EXISTS 'root'@'127.0.0.1' IDENTIFIED BY '$password';
GRANT ALL ON *.* TO 'root'@'127.0.0.1' WITH GRANT OPTION;
CREATE USER IF NOT EXISTS 'ductwork'@'%' IDENTIFIED BY '$password';
GRANT ALL ON *.* TO 'ductwork'@'%' WITH GRANT OPTION;
CREATE DATABASE IF NOT EXISTS ductwork;
ALTER USER 'root'@'localhost' IDENTIFIED BY '$password';
SQL
}

# A server directory with everything but the port.
make_server() {
  local dir=$1 flavour=$2 tree=$3
  if [ -e "$dir" ] && [ -n "$(ls -A "$dir" 2>/dev/null)" ] && [ ! -e "$dir/flavour" ]; then
    die "$dir is not empty, and holds no server: choose another DIR"
  fi
  # The remains of an interrupted start.
  end_at_once "$dir"
  mkdir -p "$dir/tmp"
  echo "$flavour" >"$dir/flavour"
  rm -rf -- "$dir/tls"
  (umask 077 && od -An -N 12 -tx1 /dev/urandom | tr -d ' \n' >"$dir/password")
  configure "$dir" "$tree" "$flavour"
  make_certificates "$dir" "$tree" >"$dir/server.log" 2>&1 || die "openssl cannot make certificates: $(tail -n 1 "$dir/server.log")"
  rm -rf -- "$dir/data"
  cp -r --sparse=always "$tree/data" "$dir/data"
  chmod 700 "$dir/data"
  (umask 077 && first_statements "$dir" >"$dir/first.sql")
  give_to_owner "$dir"
  check_readable "$flavour" "$tree"
  "${as[@]}" test -w "$dir/my.cnf" || die "the user $(owner) cannot enter $dir: choose a DIR that everybody can enter"
}

# The lines of a log since the last start.
since_start() {
  tac "$1" | sed '/^== start/q' | tac
}

# The last errors among these lines.
reason() {
  local found
  found=$(since_start "$1" | grep -a ERROR | tail -n 2 | tr '\n' ' ') || true
  [ -n "$found" ] || found=$(tail -n 2 "$1" | tr '\n' ' ')
  printf '%s(see %s)' "$found" "$1"
}

# The process of a server directory, if it runs: the pid alone may belong to another process by now.
pid_of() {
  local pid
  [ -s "$1/pid" ] && pid=$(cat "$1/pid") && [ -r "/proc/$pid/cmdline" ] &&
    tr '\0' '\n' <"/proc/$pid/cmdline" 2>/dev/null | grep -qxF -e "--defaults-file=$1/my.cnf" && printf '%s\n' "$pid"
}

# Runs a statement, as root through the socket.
ask() {
  local dir=$1 base
  base=$(sed -n 's,^basedir = \(.*\)$,\1,p' "$dir/my.cnf")
  timeout 10 "$base/bin/$(client_of "$(flavour_of "$dir")")" --defaults-file="$dir/my.cnf" --connect-timeout=5 -N -B -e "$2" </dev/null
}

answers() {
  [ "$(ask "$1" 'SELECT 1' 2>/dev/null)" = 1 ]
}

# Starts the process and leaves it alone. It must not keep this script's output open (a caller that reads it would wait
# forever), and it leads its own session: no Ctrl-C reaches it.
launch() {
  local dir=$1 tree=$2
  shift 2
  echo '== start' >>"$dir/server.log"
  PATH=$tree/base/bin:$PATH setsid "${as[@]}" "$tree/base/bin/$(daemon_of "$(flavour_of "$dir")")" --defaults-file="$dir/my.cnf" \
    --port="$(cat "$dir/port")" "$@" </dev/null >>"$dir/server.log" 2>&1 &
  echo "$!" >"$dir/pid"
  # This script reports its end, not the shell.
  disown
}

# Waits until a condition holds for a server directory; fails if its process ends, or at the time limit.
wait_until() {
  local condition=$1 dir=$2 end=$((SECONDS + start_limit)) pid
  pid=$(cat "$dir/pid")
  until "$condition" "$dir"; do
    kill -0 "$pid" 2>/dev/null || return 1
    if [ "$SECONDS" -ge "$end" ]; then
      echo "ERROR: not ready after $start_limit s, says $script" >>"$dir/server.log"
      return 1
    fi
    sleep 0.1
  done
}

# A port on which nothing answers. Only the server's own start can tell for sure.
free_port() {
  local port
  while :; do
    port=$((20000 + RANDOM % 12000))
    (: <>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || break
  done
  printf '%s\n' "$port"
}

# Makes the server in DIR, unless it exists, starts it, unless it runs, and prints the environment variables.
start_server() {
  local dir flavour tree tries
  dir=$(whole "$1") || exit 1
  flavour=$2
  shift 2
  set_as
  [ ! -e "$dir/made" ] || flavour=$(flavour_of "$dir")
  tree=$(tree_of "$flavour") || exit 1
  [ -e "$dir/made" ] || make_server "$dir" "$flavour" "$tree"
  if pid_of "$dir" >/dev/null; then
    wait_until answers "$dir" || die "the server in $dir runs, and does not answer: see $dir/server.log"
  else
    configure "$dir" "$tree" "$flavour"
    [ ! -e "$dir/first.sql" ] || set -- --init-file="$dir/first.sql" "$@"
    if [ -e "$dir/port" ]; then
      launch "$dir" "$tree" "$@"
      if ! wait_until answers "$dir"; then
        end_at_once "$dir"
        die "the server did not come back: $(reason "$dir/server.log")"
      fi
    else
      for tries in 1 2 3 4 5 6 7 8 9 10; do
        free_port >"$dir/port"
        launch "$dir" "$tree" "$@"
        ! wait_until answers "$dir" || break
        end_at_once "$dir"
        if [ "$tries" -eq 10 ] || ! since_start "$dir/server.log" | grep -q 'already in use'; then
          rm -f "$dir/port"
          die "the server does not start: $(reason "$dir/server.log")"
        fi
      done
    fi
    : >"$dir/made"
    rm -f "$dir/first.sql"
  fi
  printf 'export DUCTWORK_TEST_MYSQL_URL=%s\n' "$(url_of "$dir")"
  printf 'export DUCTWORK_TEST_MYSQL_BIN=%s\n' "$tree/base/bin"
  printf 'export DUCTWORK_TEST_MYSQL_DIR=%s\n' "$dir"
}

url_of() {
  printf 'mysql://ductwork:%s@127.0.0.1:%s/ductwork' "$(cat "$1/password")" "$(cat "$1/port")"
}

# Waits until a process is gone, or is a zombie that its parent has not reaped.
gone() {
  local pid=$1 end=$((SECONDS + $2))
  while [ -e "/proc/$pid" ] && ! grep -q '^State:.Z' "/proc/$pid/status" 2>/dev/null; do
    [ "$SECONDS" -lt "$end" ] || return 1
    sleep 0.05
  done
}

# Kills the server at once, together with the processes that it had started.
end_at_once() {
  local pid
  if pid=$(pid_of "$1"); then
    kill -9 -- "-$pid" 2>/dev/null || kill -9 "$pid" 2>/dev/null || true
    gone "$pid" "$stop_limit" || die "process $pid does not end"
  elif [ -s "$1/pid" ]; then
    end_session "$(cat "$1/pid")" "$1"
  fi
}

# Programs of a state transfer outlive a server that was killed from elsewhere: they are those of its session whose
# command lines contain DIR. One of them may be about to start another.
end_session() {
  local session=$1 dir=$2 process stat fields found=1 end=$((SECONDS + stop_limit))
  while [ -n "$found" ]; do
    [ "$SECONDS" -lt "$end" ] || die "processes of $dir do not end"
    found=''
    for process in /proc/[0-9]*; do
      stat=$(cat "$process/stat" 2>/dev/null) || continue
      read -ra fields <<<"${stat##*) }"
      if [ "${fields[3]-}" = "$session" ] && tr '\0' ' ' <"$process/cmdline" 2>/dev/null | grep -qF "$dir/"; then
        kill -9 "${process#/proc/}" 2>/dev/null || true
        found=1
      fi
    done
  done
}

stop_server() {
  local dir=$1 pid
  flavour_of "$dir" >/dev/null
  case $2 in
    clean)
      if pid=$(pid_of "$dir"); then
        kill "$pid"
        gone "$pid" "$stop_limit" || die "the server in $dir does not stop in $stop_limit s: the mode immediate ends it"
      fi
      ;;
    immediate) end_at_once "$dir" ;;
    *) die "no mode $2: it is clean or immediate" ;;
  esac
}

remove_server() {
  flavour_of "$1" >/dev/null
  # In the fastest way: its data will not be read again.
  end_at_once "$1"
  rm -rf -- "$1"
}

usage() {
  sed -n '2,/^set -/{/^#/!d;s/^# \{0,1\}//;p}' "$0"
}

# The verbs of scripts/mariadb and scripts/mysql; the first argument is the flavour.
serve() {
  local flavour=$1 dir tree
  shift
  case "${1-} $#" in
    'start '[2-9] | 'start '[1-9][0-9]) start_server "$2" "$flavour" "${@:3}" ;;
    'stop 2' | 'stop 3')
      dir=$(whole "$2") || exit 1
      stop_server "$dir" "${3-clean}"
      ;;
    'remove 2')
      dir=$(whole "$2") || exit 1
      remove_server "$dir"
      ;;
    'bin 1')
      tree=$(tree_of "$flavour") || exit 1
      printf '%s/base/bin\n' "$tree"
      ;;
    '-h 1' | '--help 1') usage ;;
    *)
      usage >&2
      exit 2
      ;;
  esac
}
