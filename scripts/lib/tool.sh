# shellcheck shell=bash
# tool NAME PACKAGE: the path of the program that internal/tools/NAME pins. It is built from source
# on the first run and kept in the user's cache under the hash of the module's files.
tool() {
  local dir=internal/tools/$1 bin
  bin=${XDG_CACHE_HOME:-$HOME/.cache}/onceward/bin/$1-$(cat "$dir/go.mod" "$dir/go.sum" | cksum | tr -dc '0-9')
  if [ ! -x "$bin" ]; then
    mkdir -p "$(dirname "$bin")"
    GOWORK=off go -C "$dir" build -o "$bin.$$" "$2" && mv "$bin.$$" "$bin" || return 1
  fi
  echo "$bin"
}
