#!/usr/bin/env bash
# moto, a server in Python that answers as AWS does, for the tests of queue/sqsqueue.
#
#   moto.sh install       put it into the user's cache, from PyPI
#   moto.sh serve PORT    install it if it is missing, and serve on loopback until killed
#
# Needs python3 with venv, as Debian's package python3-venv has it.
set -euo pipefail

version=${ONCEWARD_MOTO_VERSION:-5.1.16}
dir=${XDG_CACHE_HOME:-$HOME/.cache}/onceward/moto-$version

# install makes the environment in a folder of its own, so that an interrupted run leaves no half.
install() {
  local made
  if [ -x "$dir/bin/moto_server" ]; then return; fi
  mkdir -p "$(dirname "$dir")"
  made=$(mktemp -d "$dir.XXXXXX")
  trap 'rm -rf "$made"' EXIT
  python3 -m venv "$made" >&2
  "$made/bin/pip" --quiet --disable-pip-version-check install "moto[server,sqs]==$version" >&2
  # The launchers of an environment name its folder.
  "$made/bin/python" -m compileall -q "$made/lib" >&2 || true
  sed -i "1s|.*|#!$dir/bin/python|" "$made/bin/moto_server"
  mv "$made" "$dir"
  trap - EXIT
}

case "${1:-}" in
  install) install ;;
  serve) install && exec "$dir/bin/moto_server" -H 127.0.0.1 -p "$2" ;;
  *) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p;}' "$0" >&2 && exit 2 ;;
esac
