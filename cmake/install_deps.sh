#!/usr/bin/env bash
# Installs what building and testing need on Debian 12, and fetches the pinned sources of the static
# dependencies. Idempotent; a second run does nothing.
#
#   cmake/install_deps.sh [--python]     --python: also the virtual environment of the Python tests
#
# Sources go to ${ENGINE_DEPS_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/engine/deps}, where cmake/Deps.cmake
# looks for them. They come through apt's own mirror with a private list, so that the system's apt sources
# stay as they are. They are built by our CMake, position-independent, because Debian's static libraries are
# not and a self-contained libengine.so needs that (Debian's Abseil has another string_view, besides).
set -euo pipefail

cache=${XDG_CACHE_HOME:-$HOME/.cache}/engine
deps=${ENGINE_DEPS_DIR:-$cache/deps}
say() { printf '%s\n' "$*" >&2; }

need_packages() {
  local missing=() package
  for package in "$@"; do
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return
  say "installing packages: ${missing[*]}"
  if [ "$(id -u)" != 0 ]; then say "run as root, or install them yourself"; exit 1; fi
  apt-get -qq update >&2
  DEBIAN_FRONTEND=noninteractive apt-get -qq -y install --no-install-recommends "${missing[@]}" >&2
}

# The mirror that this machine's apt already uses.
mirror() {
  sed -n 's/^URIs: *\([^ ]*\).*/\1/p' /etc/apt/sources.list.d/*.sources 2>/dev/null |
    grep -v security | grep -m1 'debian' && return
  sed -n 's/^deb \(\[[^]]*\] \)\?\([^ ]*\).*/\2/p' /etc/apt/sources.list 2>/dev/null | grep -v security | grep -m1 debian
}

apt_ready=
private_apt() {
  local root=$deps/apt
  if [ -z "$apt_ready" ]; then
    mkdir -p "$root/state/lists/partial" "$root/cache/archives/partial"
    local uri key=/usr/share/keyrings/debian-archive-keyring.gpg suite
    uri=$(mirror) || { say "no Debian mirror found in apt's sources"; exit 1; }
    for suite in trixie bookworm; do echo "deb-src [signed-by=$key] $uri $suite main"; done >"$root/sources.list"
  fi
  local options=(-qq -o "Dir::Etc::sourcelist=$root/sources.list" -o Dir::Etc::sourceparts=-
    -o "Dir::State=$root/state" -o "Dir::Cache=$root/cache" -o Dir::State::status=/var/lib/dpkg/status
    -o APT::Sandbox::User=root)
  if [ -z "$apt_ready" ]; then
    apt-get "${options[@]}" update >&2
    apt_ready=1
  fi
  apt-get "${options[@]}" "$@" >&2
}

# source NAME VERSION SHA256: unpacks the upstream tarball of a Debian source package into $deps/NAME.
source_tree() {
  local name=$1 version=$2 sha=$3 stamp=$deps/$1/.stamp
  [ "$(cat "$stamp" 2>/dev/null)" = "$sha" ] && return
  say "fetching the source of $name $version"
  local work
  work=$(mktemp -d "$deps/fetch.XXXXXX")
  (cd "$work" && private_apt --download-only --tar-only source "$name=$version")
  local tarball
  tarball=$(ls "$work"/*.orig.tar.gz)
  echo "$sha  $tarball" | sha256sum --check --quiet >&2
  rm -rf "${deps:?}/$name" && mkdir -p "$deps/$name"
  tar -xzf "$tarball" --strip-components=1 -C "$deps/$name"
  echo "$sha" >"$stamp"
  rm -rf "$work"
}

need_packages g++ cmake ninja-build ccache make pkg-config binutils ca-certificates dpkg-dev \
  libxxhash-dev nlohmann-json3-dev python3 python3-venv python3-pip
mkdir -p "$deps"
# Version and SHA-256 of each: the same as in Deps.cmake.
source_tree abseil 20240722.0-4 df6d1f5ef540725f3851201176a60486aab332410788465c9877910bb471c34a
source_tree highway 1.2.0-2 7e0be78b8318e8bdbf6fa545d2ecb4c90f947df03f7aadc42c1967f019e63343
source_tree catch2 3.7.1-0.5 c991b247a1a0d7bb9c39aa35faf0fe9e19764213f28ffba3109388e62ee0269c
source_tree pcre2 10.42-1 c33b418e3b936ee3153de2c61cc638e7e4fe3156022a5c77d0711bcbb9d64f1f

if [ "${1:-}" = --python ]; then
  venv=$cache/venv-test
  if ! "$venv/bin/python" -c 'import gguf, numpy, pytest, tokenizers, jinja2' 2>/dev/null; then
    say "making the Python environment of the tests"
    /usr/bin/python3 -m venv "$venv"
    "$venv/bin/pip" install -q numpy pytest gguf tokenizers jinja2 >&2
  fi
fi
