# shellcheck shell=bash
# Valkey 8.1, of Debian's suite trixie: the valkey-server of the machine if that is new enough, or
# ONCEWARD_VALKEY_SERVER, or the package with the libraries of its suite, in a cache of ours.

VALKEY_SUITE=trixie
VALKEY_CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/onceward/valkey-$VALKEY_SUITE
VALKEY_PACKAGES="valkey-tools valkey-server libc6 libjemalloc2 liblzf1 libssl3t64 libsystemd0 libatomic1 libcap2 zlib1g libzstd1 libgcc-s1"

valkey_nodes=1 valkey_span=1 valkey_stopsig=KILL

# valkey_new PROGRAM: whether it runs, and is of version 8.1 or newer.
valkey_new() {
  local major minor
  read -r major minor < <("$1" --version 2> /dev/null | sed -n 's/.* v=\([0-9]*\)\.\([0-9]*\)\..*/\1 \2/p') || return 1
  [ "$((major * 100 + minor))" -ge 801 ]
}
valkey_server() {
  local program
  for program in "${ONCEWARD_VALKEY_SERVER:-}" "$(command -v valkey-server)" "$VALKEY_CACHE/valkey-server"; do
    if [ -n "$program" ] && valkey_new "$program"; then
      echo "$program"
      return
    fi
  done
  return 1
}

# valkey_fetch puts the packages into the cache, and a program next to them that starts the server
# with their libraries: those of an older suite will not do.
valkey_fetch() {
  valkey_server > /dev/null && return
  local hint="please install valkey-server 8.1 or newer, or set ONCEWARD_VALKEY_SERVER"
  command -v apt-get > /dev/null && command -v dpkg-deb > /dev/null || die "$hint"
  local keys=/usr/share/keyrings/debian-archive-keyring.gpg
  [ -e "$keys" ] || apt_install debian-archive-keyring
  say "installing Valkey 8.1 of Debian $VALKEY_SUITE below $VALKEY_CACHE"
  local tmp loader options deb
  mkdir -p "$(dirname "$VALKEY_CACHE")"
  tmp=$(mktemp -d "$VALKEY_CACHE.XXXXXX")
  mkdir -p "$tmp/lists/partial" "$tmp/cache/archives/partial" "$tmp/debs" "$tmp/root"
  echo "deb [signed-by=$keys] ${ONCEWARD_DEBIAN_MIRROR:-http://deb.debian.org/debian} $VALKEY_SUITE main" > "$tmp/sources.list"
  options="-qq -o Dir::Etc::sourcelist=$tmp/sources.list -o Dir::Etc::sourceparts=- -o Dir::State::lists=$tmp/lists
    -o Dir::Cache=$tmp/cache -o APT::Sandbox::User=$(id -un)"
  # shellcheck disable=SC2086
  (cd "$tmp/debs" && apt-get $options update && apt-get $options download $VALKEY_PACKAGES) > "$tmp/log" 2>&1 || {
    tail -n 15 "$tmp/log" >&2
    die "apt-get could not download Valkey; $hint"
  }
  for deb in "$tmp"/debs/*.deb; do dpkg-deb -x "$deb" "$tmp/root"; done
  loader=$(cd "$tmp/root" && find . -name 'ld-linux-*.so.*' ! -type d | sed -n '1s,^\./,,p')
  rm -rf "$tmp/lists" "$tmp/cache" "$tmp/debs"
  rm -rf "$VALKEY_CACHE"
  mv "$tmp" "$VALKEY_CACHE"
  cat > "$VALKEY_CACHE/valkey-server" << EOF
#!/bin/sh
here=\$(dirname "\$0")/root
libraries=\$(echo "\$here"/usr/lib/*-linux-gnu | tr ' ' ':')
exec "\$here/$loader" --library-path "\$libraries" "\$here/usr/bin/valkey-server" "\$@"
EOF
  chmod +x "$VALKEY_CACHE/valkey-server"
  valkey_server > /dev/null || die "Valkey does not start; $hint"
}

valkey_port() { redis_port "$@"; }
valkey_prepare() { :; }
valkey_launch() {
  local ONCEWARD_REDIS_SERVER
  ONCEWARD_REDIS_SERVER=$(valkey_server) || die "Valkey 8.1 is not there; run: $0 install"
  redis_start "$1" "$2"
}
valkey_ready() { redis_answers "$1" "$2"; }
valkey_finish() { :; }
