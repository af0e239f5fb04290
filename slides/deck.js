// Shows one slide at a time, scaled to the window. Without this script, on narrow screens and in
// print, the slides simply stand below each other.
"use strict";

const kWidth = 1280;   // of a slide, in CSS pixels; as in theme.css
const kHeight = 720;
const kNarrow = 700;   // below this window width the slides scroll

const slides = [...document.querySelectorAll("section.slide")];
const body = document.body;
let current = 0;
let partner = null;  // the other window, when one shows the slides and one the notes

// The number goes on each slide itself, so that the printed pages have it too.
slides.forEach((slide, i) => { slide.dataset.page = `${i + 1} / ${slides.length}`; });

function scrolls() {
  return body.classList.contains("all") || window.innerWidth < kNarrow;
}

function fit() {
  body.classList.toggle("scroll", scrolls());
  const share = body.classList.contains("notes") ? 0.62 : 1;
  const scale = Math.min(window.innerWidth / kWidth, share * window.innerHeight / kHeight);
  body.style.setProperty("--scale", scale);
}

function show(index, tell = true) {
  current = Math.max(0, Math.min(slides.length - 1, index));
  slides.forEach((slide, i) => slide.classList.toggle("current", i === current));
  history.replaceState(null, "", `#${current + 1}`);
  if (tell && partner && !partner.closed) partner.postMessage({slide: current}, "*");
}

function open_notes() {
  const address = location.href.split(/[?#]/)[0] + "?notes";
  partner = window.open(`${address}#${current + 1}`, "notes", "width=1000,height=800");
}

const keys = {
  ArrowRight: () => show(current + 1), PageDown: () => show(current + 1), " ": () => show(current + 1),
  ArrowLeft: () => show(current - 1), PageUp: () => show(current - 1),
  Home: () => show(0), End: () => show(slides.length - 1),
  n: () => body.classList.toggle("notes"), s: () => body.classList.toggle("all"), p: open_notes,
};

document.addEventListener("keydown", (event) => {
  const action = keys[event.key];
  if (!action || event.ctrlKey || event.metaKey || event.altKey) return;
  if (scrolls() && event.key !== "s" && event.key !== "p") return;  // leave scrolling to the browser
  event.preventDefault();
  action();
  fit();
});
document.addEventListener("click", (event) => {
  if (!scrolls() && !event.target.closest("a, [role=note]") && !getSelection().toString()) {
    show(current + (event.clientX < window.innerWidth / 3 ? -1 : 1));
  }
});
window.addEventListener("message", (event) => {
  if (event.source !== partner || !Number.isInteger(event.data.slide)) return;
  show(event.data.slide, false);
});
window.addEventListener("resize", fit);
window.addEventListener("hashchange", () => show(Number(location.hash.slice(1)) - 1));

if (location.search === "?notes") {
  body.classList.add("notes");
  partner = window.opener;
}
body.classList.add("deck");
fit();

// What does not fit on its slide, for scripts/slides.sh to report.
function overflowing() {
  return slides.flatMap((slide, i) => {
    const bottom = slide.getBoundingClientRect().top + slide.clientHeight;
    const right = slide.getBoundingClientRect().left + slide.clientWidth;
    const out = [...slide.querySelectorAll(":scope > :not([role=note])")].some((element) => {
      const box = element.getBoundingClientRect();
      return box.bottom > bottom || box.right > right || element.scrollWidth > element.clientWidth + 1;
    });
    return out ? [i + 1] : [];
  });
}
if (location.search === "?check") {
  body.classList.remove("deck");
  document.fonts.ready.then(() => { document.title = `overflow: ${overflowing().join(" ")}`; });
}
show((Number(location.hash.slice(1)) || 1) - 1, false);
