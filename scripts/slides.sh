#!/usr/bin/env bash
# Builds every slides/NN_*.md into build/slides: one self-contained HTML file and one PDF per deck.
#
# Usage: scripts/slides.sh [NN ...]
#   NN  only these decks, e.g. 01
#
# Lists and installs missing packages; from then on it works offline. The HTML needs pandoc and fonts;
# Chromium, Chrome or Edge prints the PDF.
set -euo pipefail
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=scripts/setup.sh
source "$root/scripts/setup.sh"
cd "$root"
out=build/slides
assets=$out/assets

find_browser() {
  local name
  for name in chromium chromium-browser google-chrome google-chrome-stable microsoft-edge; do
    if command -v "$name"; then return; fi
  done
}

# On Ubuntu, Chromium is a snap only: there is no PDF until a browser is installed by hand.
has_chromium_package() { apt-cache show chromium 2>/dev/null | grep -q '^Filename:'; }

# copy_font FILE PACKAGE: copies it to the assets, from which pandoc embeds it.
copy_font() {
  local file
  file=$(find /usr/share/fonts /usr/share/texmf /usr/local/share/fonts -name "$1" 2>/dev/null |
    head -n 1)
  [[ -n $file ]] || fail "the font $1 is missing: apt-get install $2"
  cp "$file" "$assets/fonts/"
}

prepare() {
  install_packages slides
  command -v pandoc >/dev/null || fail "pandoc is missing: apt-get install pandoc"
  if [[ -z $(find_browser) ]] && has_chromium_package; then install_packages slides-pdf; fi
  mkdir -p "$assets/fonts"
  cp slides/theme.css "$assets/"
  copy_font Lato-Regular.ttf fonts-lato
  copy_font Lato-Bold.ttf fonts-lato
  copy_font JetBrainsMono-Regular.ttf fonts-jetbrains-mono
  copy_font latinmodern-math.otf fonts-lmodern
}

# build_html DECK HTML
build_html() {
  # pandoc 2.19 renamed the option and warns about the old name.
  local embed=(--self-contained)
  if pandoc --help | grep -q embed-resources; then embed=(--embed-resources --standalone); fi
  pandoc "$1" --from markdown --to dzslides --slide-level 1 --mathml "${embed[@]}" \
    --template slides/template.html --css "$assets/theme.css" \
    --variable deck-script=slides/deck.js --lua-filter slides/filter.lua \
    --resource-path slides:. --highlight-style kate --output "$2"
}

# run_browser OPTION ... URL
run_browser() {
  # Chromium's sandbox does not work for root, e.g. in a container. The page is our own.
  local sandbox=()
  if ((EUID == 0)); then sandbox=(--no-sandbox); fi
  "$browser" --headless "${sandbox[@]}" --disable-gpu --user-data-dir="$profile" "$@" \
    2>"$profile/log"
}

# build_pdf HTML PDF
build_pdf() {
  rm -f "$2"
  run_browser --no-pdf-header-footer --print-to-pdf="$root/$2" "file://$root/$1" || true
  if [[ ! -s $2 ]]; then
    tail -n 5 "$profile/log" >&2
    fail "$browser did not write $2; see its messages above"
  fi
}

# Warns about slides whose content does not fit; deck.js measures them.
check_overflow() {
  local slides
  slides=$(run_browser --window-size=1400,900 --virtual-time-budget=5000 --dump-dom \
    "file://$root/$1?check" | sed -n 's/.*<title>overflow: *\([0-9 ]*\)<.*/\1/p')
  if [[ -n $slides ]]; then echo "  warning: the content does not fit on slide $slides"; fi
}

for number; do
  compgen -G "slides/${number}_*.md" >/dev/null ||
    fail "there is no deck '$number'; the decks are: $(cd slides && echo [0-9][0-9]*_*.md)"
done

prepare
browser=$(find_browser)
profile=$(mktemp -d -t workbook-slides.XXXXXX)
trap 'rm -rf "$profile"' EXIT

for deck in slides/[0-9][0-9]*_*.md; do
  name=$(basename "$deck" .md)
  if (($# > 0)) && [[ " $* " != *" ${name%%_*} "* ]]; then continue; fi
  build_html "$deck" "$out/$name.html"
  echo "$out/$name.html"
  if [[ -n $browser ]]; then
    build_pdf "$out/$name.html" "$out/$name.pdf"
    echo "$out/$name.pdf"
    check_overflow "$out/$name.html"
  else
    echo "  no PDF: no Chromium, Chrome or Edge found (any browser can print the HTML to PDF)"
  fi
done
