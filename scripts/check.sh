#!/usr/bin/env bash
# Formatting and lint of the project's own files.
#   scripts/check.sh format          rewrites files in the project's format
#   scripts/check.sh format --check  only lists the files that differ
#   scripts/check.sh lint            clang-tidy and shellcheck
#   scripts/check.sh lint COMMIT     the same, but only C++ files that changed since COMMIT (all, if the
#                                    history does not go back that far)
set -euo pipefail
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
build="$root/build/student"
# shellcheck source=scripts/setup.sh
source "$root/scripts/setup.sh"
cd "$root"

cpp_files() { find common labs solutions tests train \( -name '*.h' -o -name '*.cpp' \) -print0 | sort -z; }

# The files to lint: not the students' (TODOs leave parameters unused).
linted_files() {
  find common solutions tests train -name '*.cpp'
  find labs -name 'main*.cpp'
}

format() {
  local mode=(-i)
  if [[ ${1:-} == --check ]]; then mode=(--dry-run --Werror); fi
  cpp_files | xargs -0 clang-format "${mode[@]}" || fail "not formatted: run ./workbook format"
  echo "format: $(cpp_files | tr -cd '\0' | wc -c) files are formatted"
}

# Those files on stdin that changed since commit $1, or whose header did.
changed_since() {
  local changed
  if ! git -C "$root" rev-parse --verify --quiet "$1^{commit}" >/dev/null; then
    cat
    return
  fi
  changed=$(git -C "$root" diff --name-only "$1" | sed -e 'p;s/\.h$/.cpp/')
  grep -Fx -f <(printf '%s\n' "$changed") || true
}

# clang-tidy on one file; prints its output at once, because several run in parallel.
tidy() {
  local output
  if ! output=$(clang-tidy -p "$commands" --quiet --extra-arg=-Wno-unknown-warning-option "$1" 2>&1)
  then
    printf '%s\n' "$output" |
      grep -vE '^[0-9]+ warnings? (and [0-9]+ errors? )?(generated|treated)' >&2
    return 1
  fi
}

lint() {
  local scripts
  mapfile -t scripts < <(git ls-files | xargs -d '\n' grep -lsE '^#!.*bash|^# shellcheck shell=bash')
  shellcheck -x "${scripts[@]}" || fail "shellcheck: see above"
  # Without a file's compile command, clang-tidy would guess the flags.
  local known
  known=$(linted_files | while read -r file; do
    if grep -qF "\"$root/$file\"" "$build/compile_commands.json"; then echo "$file"; fi
  done)
  if [[ -n ${1:-} ]]; then known=$(changed_since "$1" <<<"$known"); fi
  # Without GCC's precompiled headers, which clang cannot read: every file must include what it uses.
  commands=$(mktemp -d)
  trap 'rm -rf "$commands"' EXIT
  sed -E 's/-Winvalid-pch|-fno-gnu-unique|-include [^ ]*cmake_pch\.hxx//g' "$build/compile_commands.json" \
    >"$commands/compile_commands.json"
  export -f tidy
  export commands
  # shellcheck disable=SC2016  # $0 is the file that xargs passes
  printf '%s' "$known" | xargs -r -d '\n' -n 1 -P "$(nproc)" bash -c 'tidy "$0"' ||
    fail "clang-tidy: see above"
  echo "lint: ${#scripts[@]} scripts and $(grep -c . <<<"$known" || true) C++ files are clean"
}

install_packages check
# shellcheck disable=SC2119
case ${1:-} in
  format) format "${2:-}" ;;
  lint)
    ensure_ready
    lint "${2:-}"
    ;;
  *) fail "usage: scripts/check.sh format [--check] | lint [COMMIT]" ;;
esac
