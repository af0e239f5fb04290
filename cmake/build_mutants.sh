#!/usr/bin/env bash
# Compiles every source in a folder, the mutants of a solution, into a shared object, unless there is
# one that is newer than the source and the compiler's options.
#
# usage: build_mutants.sh [--optimized] COMPILE_COMMANDS SOLUTION SOURCE_FOLDER OBJECT_FOLDER
#   COMPILE_COMMANDS: the compile_commands.json that says how SOLUTION is compiled
#   --optimized: as SOLUTION is, to compare their speed
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
mkdir -p "$objects"

# The solution's command without its files, its warnings and its optimisation, which would cost more
# time than it saves in a test; the emulation of CUDA needs its own flags (cmake/Emulation.cmake).
command=$(grep -A 1 -F -B 2 "\"file\": \"$solution\"" "$commands" | sed -n 's/^ *"command": "\(.*\)",\?$/\1/p' |
  head -n 1 | sed -e 's/\\\(.\)/\1/g' -e 's/ -o [^ ]* -c .*//')
[[ -n $command ]] || { echo "error: $commands does not say how $solution is compiled" >&2 && exit 1; }
# shellcheck disable=SC2162 # backslashes quote, as in the command
read -a words <<<"$command"
compiler=${words[0]}
options=(-O0 -fPIC)
if $optimized; then options=(-fPIC); fi
if [[ $command == *-fsanitize=thread* ]]; then
  options=(-O1 -g1 -gdwarf-4 -fPIC -nodefaultlibs)  # the sanitizer's library is not linked
fi
for word in "${words[@]:1}"; do
  case $word in
    -O*) if $optimized; then options+=("$word"); fi ;;
    -W* | -g*) ;;
    *) options+=("$word") ;;
  esac
done

mapfile -t all < <(find "$sources" -maxdepth 1 -name '*.c*' ! -name '*.gch' | sort)
((${#all[@]})) || exit 0
# The headers that all of them include are compiled once.
common=$sources/common.h
kernels=$(sed -n 's/^#include "\(.*[.]cu\)"$/\1/p' "$solution")  # of which $solution is the wrapper
printf '%s\n' "// ${options[*]}" "$(grep -h '^#include' "${kernels:-$solution}")" >"$common.part"
if cmp -s "$common.part" "$common"; then rm "$common.part"; else mv "$common.part" "$common"; fi
root=$(dirname "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")")
if [[ ! $common.gch -nt $common ]] ||
  [[ -n $(find "$root/common" "$root/labs" "$root/tests/emulation" -name '*.h' -newer "$common.gch" -print -quit) ]]; then
  "$compiler" "${options[@]}" -x c++-header "$common" -o "$common.gch"
fi

for source in "${all[@]}"; do
  object=$objects/$(basename "${source%.*}").so
  if [[ $object -nt $source && $object -nt $common.gch ]]; then continue; fi
  printf '%s\0' -o "$object" "$source"
done | xargs -0 -n 3 -r -P "${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}" \
  "$compiler" "${options[@]}" -include "$common" -shared -x c++
