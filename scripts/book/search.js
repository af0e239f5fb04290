// The search box, the menu of narrow screens, and printing. search-index.js defines `sections`, each
// [address, title of the page, title of the section, text].
const box = document.getElementById("search");
const results = document.getElementById("results");
const menu = document.getElementById("menu");
const menuButton = document.getElementById("menu-button");
const up = document.body.dataset.up;  // from the page's folder to the site's
const mostResults = 20;

// The index is as large as all texts together: it is loaded when somebody searches.
function loadIndex() {
  const script = document.createElement("script");
  script.src = up + "search-index.js";
  script.onload = showResults;
  document.head.append(script);
}

// How well a section answers; 0 if a word is missing. A word in a title counts more.
function score([, page, title, text], words) {
  let sum = title.toLowerCase() === words.join(" ") ? 100 : 0;
  for (const word of words) {
    const times = text.toLowerCase().split(word).length - 1;
    const points = Math.min(times, 10) + (title.toLowerCase().includes(word) ? 20 : 0) +
      (page.toLowerCase().includes(word) ? 5 : 0);
    if (points === 0) return 0;
    sum += points;
  }
  return sum;
}

// A link to the section, and the text around the first of the words, with all of them marked.
function result([address, page, title, text], words) {
  const item = document.createElement("li");
  item.innerHTML = "<a></a><p></p>";
  item.firstChild.href = up + address;
  item.firstChild.textContent = title === page ? page : `${page} › ${title}`;
  const start = text.lastIndexOf(" ", Math.max(0, text.toLowerCase().indexOf(words[0]) - 50)) + 1;
  const literal = words.map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  text.slice(start, start + 160).split(new RegExp(`(${literal.join("|")})`, "i")).forEach((part, k) => {
    const node = document.createElement(k % 2 ? "mark" : "span");
    node.textContent = part;
    item.lastChild.append(node);
  });
  return item;
}

function showResults() {
  const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
  results.hidden = words.length === 0;
  const found = sections.map((section) => [score(section, words), section])
    .filter(([points]) => points > 0).sort((a, b) => b[0] - a[0]).slice(0, mostResults);
  results.replaceChildren(...found.map(([, section]) => result(section, words)));
  if (found.length === 0) results.textContent = "Nothing found";
}

box.addEventListener("input", () => typeof sections === "undefined" ? loadIndex() : showResults());
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") results.hidden = true;
  if (event.key === "Enter" && event.target === box) results.querySelector("a")?.click();
  if (event.key === "/" && event.target !== box) { event.preventDefault(); box.focus(); }
});
document.addEventListener("click", (event) => {
  if (event.target !== box) results.hidden = true;
  const open = event.target === menuButton && menuButton.ariaExpanded !== "true";
  menuButton.ariaExpanded = open;
  menu.classList.toggle("open", open);
  if (open) showPresentPage();
});

function showPresentPage() {
  menu.scrollTop = (menu.querySelector("[aria-current]")?.offsetTop ?? 0) - 60;
}
showPresentPage();

// What is closed cannot be opened on paper.
addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("details")) details.open = true;
});
