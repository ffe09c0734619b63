#!/usr/bin/env bash
# Installs what building and testing need on Debian 12: packages, pinned source trees, a Python environment.
#
#   cmake/install_deps.sh [build] [test] [venv] [fuzz] [coverage] [aarch64]     no group: build
#   cmake/install_deps.sh --print-python                              the Python of the group venv
#
#   build     compiler, CMake, Ninja, ccache, libraries, and the sources of Abseil and Highway
#   test      clang-format and the sources of Catch2
#   venv      a Python environment with pytest, numpy, gguf, tokenizers, matplotlib
#   fuzz      clang with libFuzzer
#   coverage  gcovr
#   aarch64   a cross compiler, qemu, and the sources of what the other groups take as packages of this machine
#
# Idempotent: a second run only looks, and needs no root and no network.
# Sources and the environment go to ${ENGINE_DEPS_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/engine/deps}, where
# cmake/Deps.cmake looks for them (it says why they are built from source). They come from the mirror that this
# machine's apt uses, through a package list of our own, so that the system's list and sources stay as they are.
set -euo pipefail

deps=${ENGINE_DEPS_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/engine/deps}
venv=$deps/venv
requirements=(pytest==9.2.0 numpy==2.4.6 gguf==0.19.0 tokenizers==0.23.3 jinja2==3.1.6 matplotlib==3.11.2)

say() { printf 'install_deps: %s\n' "$*" >&2; }
fail() {
  say "$*"
  exit 1
}

# ---- Debian packages --------------------------------------------------------------------------------

apt_updated=
need_packages() {
  local missing=() package
  for package in "$@"; do
    [[ $(dpkg-query -W -f='${db:Status-Status}' "$package" 2> /dev/null) == installed ]] || missing+=("$package")
  done
  ((${#missing[@]})) || return 0
  say "installing ${missing[*]}"
  [[ $(id -u) == 0 ]] || fail "run this as root, or install them yourself"
  [[ $apt_updated ]] || apt-get -qq update >&2
  apt_updated=1
  DEBIAN_FRONTEND=noninteractive apt-get -qq -y install --no-install-recommends "${missing[@]}" > "$deps/apt.log" 2>&1 ||
    { cat "$deps/apt.log" >&2 && fail "apt-get install failed"; }
}

# The mirror that this machine's apt already uses for Debian itself, in either form of its source lists.
mirror() {
  {
    sed -n 's/^URIs:[[:space:]]*\([^[:space:]]*\).*/\1/p' /etc/apt/sources.list.d/*.sources || true
    sed -n 's/^deb[[:space:]]\{1,\}\(\[[^]]*\][[:space:]]*\)\{0,1\}\([^[:space:]]*\).*/\2/p' \
      /etc/apt/sources.list /etc/apt/sources.list.d/*.list || true
  } 2> /dev/null | sed -n '/debian-security/d; /\/debian\/*$/{p;q;}'
}

# ---- source trees -----------------------------------------------------------------------------------

# Runs apt-get on a list that holds only the source packages of Debian 12 and 13, which have the versions we pin.
private_apt() {
  local root=$deps/apt keys=/usr/share/keyrings/debian-archive-keyring.gpg uri
  local options=(-qq -o "Dir::Etc::sourcelist=$root/sources.list" -o Dir::Etc::sourceparts=- -o "Dir::State=$root/state"
    -o "Dir::Cache=$root/cache" -o Dir::State::status=/var/lib/dpkg/status -o APT::Sandbox::User=root)
  if [[ ! -f $root/updated_by || $(< "$root/updated_by") != $$ ]]; then
    mkdir -p "$root/state/lists/partial" "$root/cache/archives/partial"
    uri=$(mirror)
    [[ $uri ]] || fail "found no Debian mirror in apt's sources"
    printf "deb-src [signed-by=$keys] $uri %s main\n" bookworm trixie > "$root/sources.list"
    apt-get "${options[@]}" update >&2
    echo $$ > "$root/updated_by"
  fi
  apt-get "${options[@]}" "$@" >&2
}

# source_tree SUITE PACKAGE NAME SHA256: unpacks the upstream tarball of a Debian source package into $deps/NAME.
source_tree() {
  local suite=$1 package=$2 name=$3 sha256=$4 stamp=$deps/$3/.stamp work
  [[ -f $stamp && $(< "$stamp") == "$sha256" ]] && return
  say "fetching the source of $name"
  work=$(mktemp -d "$deps/fetch.XXXXXX")
  (cd "$work" && private_apt --download-only --tar-only source "$package/$suite")
  echo "$sha256  $(echo "$work"/*.orig.tar.gz)" | sha256sum --check --quiet >&2 ||
    fail "the tarball of $name is not the pinned one; unpack the pinned version and set FETCHCONTENT_SOURCE_DIR_*"
  mkdir "$work/tree"
  tar -xzf "$work"/*.orig.tar.gz --strip-components=1 -C "$work/tree"
  echo "$sha256" > "$work/tree/.stamp"
  rm -rf "${deps:?}/$name"
  mv "$work/tree" "$deps/$name"
  rm -rf "$work"
}

# ---- groups -----------------------------------------------------------------------------------------

# The hashes are of Debian's upstream tarballs: Highway's and Catch2's are the files that Deps.cmake names, Abseil's
# (20240722.0) is the same release packed again.
group_build() {
  need_packages g++ cmake ninja-build ccache ca-certificates libxxhash-dev nlohmann-json3-dev libpcre2-dev \
    libutf8proc-dev libcjson-dev
  source_tree trixie abseil abseil df6d1f5ef540725f3851201176a60486aab332410788465c9877910bb471c34a
  source_tree trixie highway highway 7e0be78b8318e8bdbf6fa545d2ecb4c90f947df03f7aadc42c1967f019e63343
}

group_test() {
  need_packages clang-format python3
  source_tree trixie catch2 catch2 c991b247a1a0d7bb9c39aa35faf0fe9e19764213f28ffba3109388e62ee0269c
}

group_venv() {
  local wanted="${requirements[*]}"
  [[ -f $venv/.stamp && $(< "$venv/.stamp") == "$wanted" ]] && return
  need_packages python3 python3-venv ca-certificates
  say "making the Python environment"
  rm -rf "$venv"
  /usr/bin/python3 -m venv "$venv"
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "${requirements[@]}" >&2
  echo "$wanted" > "$venv/.stamp"
}

group_fuzz() { need_packages clang libclang-rt-dev; }

group_coverage() { need_packages gcovr; }

group_aarch64() {
  need_packages g++-aarch64-linux-gnu qemu-user-static
  source_tree bookworm pcre2 pcre2 c33b418e3b936ee3153de2c61cc638e7e4fe3156022a5c77d0711bcbb9d64f1f
  source_tree bookworm utf8proc utf8proc a0a60a79fe6f6d54e7d411facbfcc867a6e198608f2cd992490e46f04b1bcecc
  source_tree bookworm xxhash xxhash 3bb6b7d6f30c591dd65aaaff1c8b7a5b94d81687998ca9400082c739a690436c
  source_tree bookworm nlohmann-json3 json d69f9deb6a75e2580465c6c4c5111b89c4dc2fa94e3a85fcd2ffcd9a143d9273
}

if [[ ${1:-} == --print-python ]]; then
  echo "$venv/bin/python"
  exit 0
fi
mkdir -p "$deps"
# One at a time: two builds may start together on a new machine.
exec 9> "$deps/.lock"
flock 9
(($#)) || set -- build
for group in "$@"; do
  [[ $(type -t "group_$group") == function ]] || fail "unknown group $group; see the head of this file"
  "group_$group" 9>&-
done
