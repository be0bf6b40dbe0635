# shellcheck shell=bash
# The programs of MariaDB and MySQL: Debian's packages of a release, downloaded by apt-get and unpacked into
# target/FLAVOUR, once. It installs nothing and runs no script of a package. servers.sh sources this.

# The packages whose programs are used, with all their dependencies.
packages() {
  case $1 in
    mariadb-*) echo 'mariadb-server-core mariadb-client-core galera-4 openssl rsync lsof procps' ;;
    mysql-*) echo 'mysql-server-core mysql-client-core openssl' ;;
  esac
}

# The packages of which only the files are needed: their dependencies are those of a service.
files_of() {
  case $1 in
    mariadb-*) echo 'mariadb-server mariadb-client' ;;
  esac
}

# Debian's archives for a release, from this machine's apt sources.
sources() {
  local release=$1 id='' own='' keys=/usr/share/keyrings/debian-archive-keyring.gpg uri suite component main='' security=''
  if [ -r /etc/os-release ]; then
    id=$(. /etc/os-release && printf '%s' "${ID-}")
    own=$(. /etc/os-release && printf '%s' "${VERSION_CODENAME-}")
  fi
  [ "$id" = debian ] || die "the server's packages are for Debian, which this machine is not: use one, $instead"
  while read -r uri suite component; do
    [ "$component" = main ] || continue
    case $suite in
      *-security) security=${security:-$uri} ;;
      "$own" | stable | oldstable | testing | unstable | bookworm | trixie | sid) main=${main:-$uri} ;;
    esac
  done < <(apt-get indextargets --no-release-info --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages')
  [ -n "$main" ] || die "apt's sources name no archive of Debian: add one to /etc/apt/sources.list.d, $instead"
  source_of "$main" "$release" "$keys"
  if [ -n "$security" ] && [ "$release" != sid ]; then
    source_of "$security" "$release-security" "$keys"
  fi
}

source_of() {
  printf 'Types: deb\nURIs: %s\nSuites: %s\nComponents: main\nTargets: Packages\n' "$1" "$2"
  [ ! -e "$3" ] || printf 'Signed-By: %s\n' "$3"
  echo
}

# apt-get with its own lists, packages and state, in which nothing is installed; of the machine's configuration it uses
# the connection to the archives.
own_apt() {
  local dir=$1
  shift
  timeout 600 apt-get -q -y -o "Dir::State=$dir" -o "Dir::State::Lists=$dir/lists" -o "Dir::State::status=$dir/status" \
    -o "Dir::Cache=$dir" -o "Dir::Cache::Archives=$dir/archives" \
    -o "Dir::Etc::SourceList=$dir/debian.sources" -o Dir::Etc::SourceParts=/dev/null \
    -o Dir::Etc::Preferences=/dev/null -o Dir::Etc::PreferencesParts=/dev/null \
    -o APT::Install-Recommends=false -o APT::Update::Error-Mode=any -o APT::Sandbox::User=root "$@"
}

# Unpacks the libraries and the named packages, but no other dependencies.
unpack() {
  local flavour=$1 archives=$2 tree=$3 deb name
  for deb in "$archives"/*.deb; do
    name=${deb##*/}
    name=${name%%_*}
    case " $(packages "$flavour") $(files_of "$flavour") " in
      *" $name "*) ;;
      *) [[ $name == lib* || $name == zlib1g ]] || continue ;;
    esac
    dpkg -x "$deb" "$tree" || return 1
  done
  rm -rf "$tree"/usr/share/{doc,man,locale,perl,perl5} "$tree"/usr/lib/*/{perl,perl-base}
}

# TREE/base is a base directory in the servers' sense. Its bin/ contains every program of the packages, run with the
# libraries of its own release. Its loader has the program's name, because that becomes the name of the process:
# wsrep_sst_rsync looks for a process named rsync.
link_programs() {
  local built=$1 tree=$2 loader='' libraries='' file name
  for file in "$built"/{usr/,}lib/*-linux-gnu*/ld-linux*.so.*; do
    [ ! -x "$file" ] || loader=$file
  done
  [ -n "$loader" ] || return 1
  for file in "$built"/usr/lib/*-linux-gnu* "$built"/lib/*-linux-gnu* "$built"/usr/lib/mysql/private; do
    [ ! -d "$file" ] || libraries=$libraries:$tree${file#"$built"}
  done
  mkdir "$built/base" "$built/base/bin" "$built/loaders" &&
    ln -s ../usr/share ../usr/lib "$built/base" || return 1
  for file in "$built"/{usr/,}{s,}bin/*; do
    name=${file##*/}
    [ -x "$file" ] && [ ! -e "$built/base/bin/$name" ] || continue
    if [ "$(head -c 4 "$file" | tr -d '\0')" = $'\177ELF' ]; then
      ln "$loader" "$built/loaders/$name" &&
        printf '#!/bin/sh\nexec %s --library-path %s %s "$@"\n' "$tree/loaders/$name" "${libraries#:}" \
          "$tree${file#"$built"}" >"$built/base/bin/$name" &&
        chmod 755 "$built/base/bin/$name" || return 1
    else
      ln -s "../..${file#"$built"}" "$built/base/bin/$name" || return 1
    fi
  done
}

install_tree() {
  local flavour=$1 tree=$2 new=$2.new
  local names extra
  read -ra names <<<"$(packages "$flavour")"
  read -ra extra <<<"$(files_of "$flavour")"
  command -v apt-get >/dev/null && command -v dpkg >/dev/null || die "the server's packages take apt-get and dpkg: use Debian, $instead"
  echo "$script: getting Debian's packages of $flavour" >&2
  rm -rf -- "$new" "$new.apt" "$tree"
  mkdir -p "$new" "$new.apt"/{lists,archives}/partial
  : >"$new.apt/status"
  sources "${flavour#*-}" >"$new.apt/debian.sources"
  own_apt "$new.apt" update </dev/null >"$new.apt/log" 2>&1 &&
    own_apt "$new.apt" install --download-only "${names[@]}" </dev/null >>"$new.apt/log" 2>&1 &&
    { [ ${#extra[@]} -eq 0 ] || (cd "$new.apt/archives" && own_apt "$new.apt" download "${extra[@]}" </dev/null >>"$new.apt/log" 2>&1); } ||
    die "apt-get cannot get $flavour (${names[*]}): $(grep -m 1 '^E:' "$new.apt/log") (see $new.apt/log): mend apt's sources, $instead"
  unpack "$flavour" "$new.apt/archives" "$new" && link_programs "$new" "$tree" ||
    die "the packages of $flavour cannot be unpacked into $new"
  mv "$new" "$tree"
  set_as
  check_readable "$flavour" "$tree"
  make_first_data "$flavour" "$tree" >"$tree/data.log" 2>&1 || die "$flavour makes no data: $(reason "$tree/data.log")"
  stamp "$flavour" "$tree" >"$tree/complete"
  rm -rf -- "$new.apt"
}

# A tree from other packages, or one that was moved, is made anew.
stamp() {
  printf '2 %s %s %s\n' "$2" "$(packages "$1")" "$(files_of "$1")"
}

# The directory of a flavour's programs: target/FLAVOUR, downloaded once.
tree_of() {
  local flavour=$1 target=${CARGO_TARGET_DIR:-target} tree
  [[ $target == /* ]] || target=$root/$target
  tree=$target/$flavour
  [[ $tree =~ ^[A-Za-z0-9/._@+-]+$ ]] || die "the path $tree has a character that the server's wrappers cannot have: set CARGO_TARGET_DIR"
  if ! stamp "$flavour" "$tree" | cmp -s - "$tree/complete"; then
    mkdir -p "$target"
    # Tests that start servers at the same time download them once.
    (
      flock -w 1200 9 || die "somebody else gets $flavour, and does not end: see $tree.lock"
      stamp "$flavour" "$tree" | cmp -s - "$tree/complete" || install_tree "$flavour" "$tree"
    ) 9>"$tree.lock" || exit 1
  fi
  printf '%s\n' "$tree"
}
