#!/usr/bin/env bash
# Compiles every source in a folder, the mutants of a solution, into a shared object, unless there is
# one that is newer than the source, the headers and the compiler's options.
#
# usage: build_mutants.sh [--optimized] COMPILE_COMMANDS SOLUTION SOURCE_FOLDER OBJECT_FOLDER
#   COMPILE_COMMANDS: the compile_commands.json that says how SOLUTION is compiled
#   --optimized: as SOLUTION is, to compare their speed
#
# Most of the compiler's time goes into headers and templates that all mutants use. So up to 24 are
# compiled together, as namespaces NAME_mutant_1, NAME_mutant_2 ... instead of the lab's NAME, each with
# its own copy of the lab's headers. Afterwards each gets a shared object in which its symbols have
# the right name. A mutant that does not compile is compiled alone.
set -euo pipefail
optimized=false
if [[ $1 == --optimized ]]; then
  optimized=true
  shift
fi
commands=$1
solution=$2
sources=$3
objects=$4
root=$(dirname "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")")
jobs=${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}
mkdir -p "$objects"

# The solution's command without its files, its warnings and its optimisation, which would cost more
# time than it saves in a test; the emulation of CUDA needs its own flags (cmake/Emulation.cmake).
command=$(grep -A 1 -F -B 2 "\"file\": \"$solution\"" "$commands" | sed -n 's/^ *"command": "\(.*\)",\?$/\1/p' |
  head -n 1 | sed -e 's/\\\(.\)/\1/g' -e 's/ -o [^ ]* -c .*//')
[[ -n $command ]] || { echo "error: $commands does not say how $solution is compiled" >&2 && exit 1; }
# shellcheck disable=SC2162 # backslashes quote, as in the command
read -a words <<<"$command"
compiler=${words[0]}
# The rank program has the libraries already; to link them as well takes ten times as long.
options=(-fPIC -nodefaultlibs)
strip=-s
if ! $optimized; then options+=(-O0); fi
if [[ $command == *-fsanitize=thread* ]]; then
  options+=(-O1 -g1 -gdwarf-4)
  strip=  # the emulation looks for variables in the table of symbols
fi
for word in "${words[@]:1}"; do
  case $word in
    -O*) if $optimized; then options+=("$word"); fi ;;
    -W* | -g*) ;;
    *) options+=("$word") ;;
  esac
done
printf '"%s"\n' "${options[@]//\"/\\\"}" >"$sources/options.new"
if cmp -s "$sources/options.new" "$sources/options"; then
  rm "$sources/options.new"
else
  mv "$sources/options.new" "$sources/options"
fi

# Some header that no other is newer than.
newest=$(find "$root/common" "$root/labs" "$root/tests/emulation" -name '*.h' -printf '%T@ %p\n' |
  sort -n | tail -n 1 | cut -d ' ' -f 2-)
mapfile -t all < <(find "$sources" -maxdepth 1 -name '*.c*' | sort)
outdated=()
for source in ${all[@]+"${all[@]}"}; do
  object=$objects/$(basename "${source%.*}").so
  for needed in "$source" "$newest" "$sources/options"; do
    if [[ ! $object -nt $needed ]]; then
      outdated+=("$source")
      break
    fi
  done
done
((${#outdated[@]})) || exit 0

kernels=$(sed -n 's/^#include "\(.*[.]cu\)"$/\1/p' "$solution")  # of which $solution is the wrapper
namespace=$(sed -n 's/^namespace \(lab[0-9a-z]*\) {.*/\1/p' "${kernels:-$solution}" | head -n 1)
folder=labs/$(basename "$(dirname "${kernels:-$solution}")")
headers=$sources/headers
mkdir -p "$headers"
for header in "$root/$folder"/*.h; do
  guard=COPY_$(basename "$header" .h)
  printf '%s\n' "#ifndef $guard" "#define $guard" \
    "$(sed -e '/^#pragma once/d' -e "s|^#include \"$folder/|#include \"|" "$header")" '#endif' \
    >"$headers/$(basename "$header")"
done

compile() { "$compiler" "@$sources/options" "$@"; }

# link OBJECT SOURCE: makes the shared object of a source.
link() { compile -shared ${strip:+"$strip"} -o "$objects/$(basename "${2%.*}").so" "$1"; }

build_alone() {
  local part=$objects/part.$BASHPID status=0
  { compile -x c++ -c -o "$part.o" "$1" && link "$part.o" "$1"; } || status=1
  rm -f "$part".*
  return $status
}

# Prints a source that contains all of the given ones.
joined() {
  local source number=0 header
  grep -h '^#include' "$@" | sort -u  # the headers themselves, under their right names
  for source; do
    echo "#define $namespace ${namespace}_mutant_$((++number))"
    sed -n "s|^#include \"$folder/|#include \"$headers/|p" "$source"
    echo "#include \"$source\""
    for header in "$headers"/*.h; do echo "#undef COPY_$(basename "$header" .h)"; done
    echo "#undef $namespace"
  done
}

build_together() {
  local part=$objects/part.$BASHPID source name number=0 status=0 wrong=() others=()
  if (($# == 1)); then
    build_alone "$1"
    return
  fi
  joined "$@" >"$part.cpp"
  if ! compile -c -o "$part.o" "$part.cpp" 2>"$part.errors"; then
    for source; do
      if grep -qF "$source:" "$part.errors"; then wrong+=("$source"); else others+=("$source"); fi
    done
    rm -f "$part".*
    if ((${#wrong[@]} == 0)); then
      wrong=("$@")
      others=()
    fi
    for source in "${wrong[@]}"; do build_alone "$source" || status=1; done
    if ((${#others[@]})); then build_together "${others[@]}" || status=1; fi
    return $status
  fi
  nm "$part.o" >"$part.symbols"
  for source; do
    name=${namespace}_mutant_$((++number))
    awk -v from="${#name}$name" -v to="${#namespace}$namespace" \
      '{ new = $NF } gsub(from, to, new) { print $NF, new }' "$part.symbols" | sort -u >"$part.names"
    { objcopy --redefine-syms="$part.names" "$part.o" "$part.one.o" && link "$part.one.o" "$source"; } || status=1
  done
  rm -f "$part".*
  return $status
}

export compiler strip sources objects namespace folder headers
export -f compile link build_alone joined build_together
most=$(((${#outdated[@]} + jobs - 1) / jobs))
printf '%s\0' "${outdated[@]}" |
  xargs -0 -n "$((most < 24 ? most : 24))" -P "$jobs" bash -uc 'build_together "$@"' --
