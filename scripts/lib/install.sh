# shellcheck shell=bash
# Finds the servers, or installs them from Debian's packages and Maven Central.

java_17() {
  local version
  version=$("$(kafka_java)" -version 2>&1 | sed -n '1s/.*version "\([0-9]*\).*/\1/p')
  [ "${version:-0}" -ge 17 ]
}

# missing_packages: the Debian packages that would bring what is not there.
missing_packages() {
  command -v gcc > /dev/null || echo gcc libc6-dev # the race detector links with it
  command -v pkill > /dev/null || echo procps
  command -v openssl > /dev/null || echo openssl
  command -v promtool > /dev/null || echo prometheus # its tests of the alert rules; it is not started
  command -v zsh > /dev/null || echo zsh # these two take what the command writes for them
  command -v fish > /dev/null || echo fish
  command -v curl > /dev/null || echo curl # these two are clients of onceward proxy
  command -v node > /dev/null || echo nodejs
  command -v redis-server > /dev/null && command -v redis-cli > /dev/null || echo redis-server
  postgres_bin > /dev/null || echo postgresql
  command -v mariadb-install-db > /dev/null && command -v mariadb > /dev/null || echo mariadb-server
  command -v pgbouncer > /dev/null || echo pgbouncer # tests start it in front of PostgreSQL
  [ -x "$RABBITMQ_BIN/rabbitmq-server" ] || echo rabbitmq-server
  python3 -c 'import ensurepip, venv' 2> /dev/null || echo python3-venv # of moto, which a test installs
  kafka_cached && java_17 && return
  java_17 || echo openjdk-17-jre-headless
  kafka_cached || command -v mvn > /dev/null || echo maven
}

# apt_install PACKAGES...: Debian starts a server when it installs it, on its default port and with
# its own data. We want the programs only, so while apt runs a policy says no to every start.
apt_install() {
  local sudo=() policy=/usr/sbin/policy-rc.d made=
  command -v apt-get > /dev/null || die "please install what brings these Debian packages: $*
(or use docker-compose.yml and the exports that its comment lists)"
  is_root || sudo=(sudo)
  say "installing $*"
  if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' | "${sudo[@]}" tee "$policy" > /dev/null
    "${sudo[@]}" chmod 755 "$policy"
    made=1
  fi
  local log ok=1
  log=$(mktemp "${TMPDIR:-/tmp}/onceward-apt.XXXXXX")
  {
    "${sudo[@]}" apt-get update -qq &&
      "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"
  } < /dev/null > "$log" 2>&1 || ok=
  if [ -n "$made" ]; then "${sudo[@]}" rm -f "$policy"; fi
  if [ -z "$ok" ]; then
    tail -n 15 "$log" >&2
    die "apt-get could not install $*; read $log"
  fi
  rm -f "$log"
}

install_all() {
  local missing
  missing=$(missing_packages | tr '\n' ' ')
  # shellcheck disable=SC2086
  if [ -n "$missing" ]; then apt_install $missing; fi
  kafka_fetch
  valkey_fetch
  debian_fetch pgbouncer-trixie pgbouncer pgbouncer trixie # the first Debian has with prepared statements
}
