# shellcheck shell=bash
# Programs of other suites of Debian, with their libraries and loader, each in a directory below our
# cache. Nothing of them is installed. ONCEWARD_DEBIAN names another mirror.

DEBIAN_CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/onceward

# debian_program NAME: the program that debian_fetch has made, if it has.
debian_program() { [ -x "$DEBIAN_CACHE/$1/$2" ] && echo "$DEBIAN_CACHE/$1/$2"; }

# debian_fetch NAME PROGRAM PACKAGE SUITE...: unpacks the package from the last of the suites. apt
# resolves and fetches with lists and a state of its own, in which nothing is installed, so that it
# brings the C library, too. A shell script next to the files starts PROGRAM with the loader and the
# libraries that came with it.
debian_fetch() {
  local name=$1 program=$2 package=$3 suites=("${@:4}")
  local dir=$DEBIAN_CACHE/$name new=$DEBIAN_CACHE/$name.new deb suite binary
  debian_program "$name" "$program" > /dev/null && return
  command -v apt-get > /dev/null && command -v dpkg-deb > /dev/null ||
    die "$package comes from Debian's packages, and apt-get is not there"
  local keys=/usr/share/keyrings/debian-archive-keyring.gpg
  [ -e "$keys" ] || apt_install debian-archive-keyring
  say "fetching $package of Debian ${suites[-1]} into $dir"
  rm -rf "$new"
  mkdir -p "$new/apt/lists/partial" "$new/apt/archives/partial" "$new/root"
  touch "$new/apt/status"
  for suite in "${suites[@]}"; do
    echo "deb [signed-by=$keys] ${ONCEWARD_DEBIAN:-http://deb.debian.org/debian} $suite main"
  done > "$new/apt/sources.list"
  cat > "$new/apt/conf" << CONF
Dir::Etc::sourcelist "$new/apt/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
Dir::State "$new/apt";
Dir::State::status "$new/apt/status";
Dir::Cache "$new/apt";
Acquire::Check-Valid-Until "false";
Acquire::Languages "none";
APT::Default-Release "${suites[-1]}";
APT::Install-Recommends "false";
APT::Sandbox::User "$(id -un)";
CONF
  {
    APT_CONFIG=$new/apt/conf apt-get update -qq &&
      APT_CONFIG=$new/apt/conf apt-get install -qq -y --download-only "$package"
  } < /dev/null > "$new/log" 2>&1 || {
    tail -n 15 "$new/log" >&2
    die "apt-get could not fetch $package; read $new/log"
  }
  for deb in "$new"/apt/archives/*.deb; do
    case $deb in */perl* | */libperl*) ;; *) dpkg-deb -x "$deb" "$new/root" ;; esac
  done
  rm -rf "$new/apt"
  binary=usr/bin/$program
  [ -e "$new/root/$binary" ] || binary=usr/sbin/$program
  [ -e "$new/root/$binary" ] || die "$package of Debian ${suites[-1]} has no program $program"
  cat > "$new/$program" << SCRIPT
#!/bin/sh
here=\$(dirname "\$0")/root
libraries=\$(echo "\$here"/usr/lib/*-linux-gnu)
exec "\$libraries"/ld-linux*.so.* --library-path "\$libraries" "\$here/$binary" "\$@"
SCRIPT
  chmod +x "$new/$program"
  rm -rf "$dir"
  mv "$new" "$dir"
  say "$package: $("$dir/$program" --version)"
}
