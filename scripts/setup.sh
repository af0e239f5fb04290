# shellcheck shell=bash disable=SC2154
# Set-up: packages, configuration, build. Sourced by scripts that have set `root` (the source
# folder) and `build` (the build folder).

fail() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

# Names of the packages of the given groups (build, check, ...), one per line.
packages() {
  awk -v groups=" $* " '/^[^#]/ && index(groups, " " $2 " ") { print $1 }' "$root/packages.txt"
}

# Those that are not installed.
missing_packages() {
  local installed
  # shellcheck disable=SC2046  # one argument per package
  installed=$(dpkg-query -W -f '${db:Status-Abbrev} ${Package}\n' $(packages "$@") 2>/dev/null |
    awk '$1 == "ii" { print $2 }' || true)
  packages "$@" | grep -vxF -f <(printf '%s\n' "$installed") || true
}

# Prints the prefix that runs apt-get as root: nothing, or "sudo". Fails if neither is possible.
root_prefix() {
  if ((EUID == 0)); then return 0; fi
  command -v sudo >/dev/null || return 1
  # Ask for a password only where somebody can type it.
  if sudo -n true 2>/dev/null || { [[ -t 0 ]] && sudo -v; }; then echo sudo; else return 1; fi
}

# Installs missing packages of the given groups, after printing their names.
install_packages() {
  local missing prefix log
  if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
    fail "this system has no apt-get: use Debian 12, Ubuntu 24.04 or newer, or the container" \
      "(README.md, \"Other machines\")"
  fi
  mapfile -t missing < <(missing_packages "$@")
  if ((${#missing[@]} == 0)); then return 0; fi

  if ! prefix=$(root_prefix); then
    fail "${#missing[@]} packages are missing and this account may not install them." \
      "Ask the administrator for:"$'\n'"  apt-get install ${missing[*]}"
  fi
  echo "Installing from packages (${#missing[@]}): ${missing[*]}" >&2
  log=$(mktemp -t workbook-apt.XXXXXX)
  local apt=(env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=120)
  if [[ -n $prefix ]]; then apt=("$prefix" "${apt[@]}"); fi
  if ! "${apt[@]}" update >"$log" 2>&1 ||
    ! "${apt[@]}" install -y --no-install-recommends "${missing[@]}" >>"$log" 2>&1; then
    tail -n 15 "$log" >&2
    fail "apt-get could not install the packages (full log: $log)"
  fi
  rm -f "$log"
}

# True if version $1 is at least $2.
at_least() { printf '%s\n%s\n' "$2" "$1" | sort -C -V; }

check_tools() {
  local version
  command -v cmake >/dev/null || fail "cmake is missing: ./workbook setup installs it"
  version=$(cmake --version | awk 'NR == 1 { print $3 }')
  at_least "$version" 3.25 ||
    fail "CMake $version is too old, 3.25 is needed: use Debian 12, Ubuntu 24.04 or newer, or the" \
      "container (README.md, \"Other machines\")"
  local compiler=${CXX:-g++}
  "$compiler" -std=c++20 -fsyntax-only -x c++ - <<<'#include <concepts>
#include <span>
int main() {}' 2>/dev/null ||
    fail "$compiler cannot compile C++20: use g++ 12 or newer (Debian 12, Ubuntu 24.04), or name" \
      "another compiler in the variable CXX"
}

# How many compilers to run at once: one per core, each with up to 1.5 GB of memory.
build_jobs() {
  local cores memory
  cores=$(nproc)
  memory=$(awk '/^MemAvailable:/ { print int($2 / 1572864) }' /proc/meminfo)
  ((memory >= 1)) || memory=1
  echo $((cores < memory ? cores : memory))
}

# A line of build/student/CMakeCache.txt: cached NAME.
cached() { sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt" 2>/dev/null; }

# Configures build/student unless it is configured already. Arguments go to cmake.
configure() {
  local fresh=() home generator log="$build/configure.log"
  [[ $root != *[[:space:]:]* ]] || fail "the workbook cannot be built in a folder with a space or a colon in its path:" \
    "move $root"
  if [[ -f $build/CMakeCache.txt ]]; then
    home=$(cached CMAKE_HOME_DIRECTORY)
    generator=$(cached CMAKE_GENERATOR)
    if [[ $home != "$root" ]]; then
      echo "build/student was made in another place ($home): configuring again" >&2
      fresh=(--fresh)
    elif [[ $generator != Ninja ]]; then
      echo "build/student was made for ${generator:-no generator}, not Ninja: configuring again" >&2
      fresh=(--fresh)
    elif [[ -f $build/build.ninja && $# == 0 ]]; then
      return 0  # ninja runs cmake itself when a CMake file has changed
    fi
  fi
  check_tools
  if [[ -n ${LAB_NATIVE:-} ]]; then set -- "$@" "-DLAB_NATIVE=$LAB_NATIVE"; fi
  mkdir -p "$build" || fail "cannot write to $build: is the folder read-only?"
  echo "Configuring (cmake --preset student)" >&2
  if ! (cd "$root" && cmake --preset student "${fresh[@]}" "$@") >"$log" 2>&1; then
    cat "$log" >&2
    fail "cmake could not configure build/student: see its message above"
  fi
}

# Reads ninja's output, and passes on what somebody who only wants the result has to know: from the third second on
# that something is built, warnings, and the errors, those of files in labs/ first, without the compilers' command lines.
build_news() {
  local line part='' status began=$SECONDS next=$((SECONDS + 3)) progress='...' shown='' block='' own='' other=''
  while true; do
    status=0
    IFS= read -r -t 1 line || status=$?
    line=$part$line part=
    if ((status > 128)); then # a second without a whole line
      part=$line line=
    elif ((status)) && [[ -z $line ]]; then
      break
    fi
    if [[ $line =~ ^\[[0-9]+/[0-9]+\] ]]; then progress=${BASH_REMATCH[0]}; fi
    if ((SECONDS - began > 2)) && [[ -t 1 ]]; then
      shown=terminal
      printf '\r\e[Kbuilding %s' "$progress"
    elif ((SECONDS >= next)); then # where nothing can be overwritten: a line a minute
      next=$((SECONDS + 60))
      echo "building $progress"
    fi
    case $line in
      '' | "-- "* | "ninja: no work to do." | "ninja: build stopped: "*) ;;
      "["[0-9]*/[0-9]*"] "*) block= ;;
      "saved meanwhile: "*) block='' own='' other='' ;; # errors were about old contents
      "FAILED: labs/"* | "FAILED: "*/labs/*) block=own_command ;;
      "FAILED: "*) block=other_command ;;
      *)
        case $block in
          *_command) block=${block%_command} ;;
          own) own+=$line$'\n' ;;
          other) other+=$line$'\n' ;;
          *)
            [[ $shown != terminal ]] || printf '\r\e[K'
            printf '%s\n' "$line"
            ;;
        esac
        ;;
    esac
  done
  [[ $shown != terminal ]] || printf '\r\e[K'
  printf '%s%s' "$own" "$other"
}

# Builds the given targets (none: all). Standard output is reserved for the program that is built: it may be redirected
# to a file.
build_targets() {
  local target arguments=() log="$build/build.log" filter=build_news
  for target; do arguments+=(--target "$target"); done
  if [[ ${CI:-} == true ]]; then filter='cat'; fi
  bash "$root/cmake/build.sh" "$root" "$build" --parallel "$(build_jobs)" "${arguments[@]}" 2>&1 |
    tee "$log" | "$filter" >&2 ||
    fail "the build failed: see the first error above (all of its output: ${log#"$root"/})"
}

# Makes the machine ready for train and test, whatever its state. If there is a build tree, packages are
# not checked: it may have been configured with libraries from elsewhere.
ensure_ready() {
  if [[ ! -f $build/build.ninja || $(cached CMAKE_HOME_DIRECTORY) != "$root" ]]; then
    install_packages build
  fi
  configure "$@"
}
