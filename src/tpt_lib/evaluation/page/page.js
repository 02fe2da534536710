"use strict";

// Tables: a click on the head of a column sorts by it, a second click the other way. Missing values stay last.
function sortBy(head, column) {
  const ascending = head.getAttribute("aria-sort") !== "ascending";
  for (const other of head.parentNode.children) other.setAttribute("aria-sort", "none");
  head.setAttribute("aria-sort", ascending ? "ascending" : "descending");
  const body = head.closest("table").tBodies[0];
  const cell = (row) => row.cells[column].textContent;
  const compare = (a, b) => {
    if (a === "-" || b === "-") return (a === "-") - (b === "-");
    const difference = parseFloat(a) - parseFloat(b);
    return (ascending ? 1 : -1) * (isNaN(difference) ? a.localeCompare(b, "en", { numeric: true }) : difference);
  };
  body.append(...[...body.rows].sort((a, b) => compare(cell(a), cell(b))));
}

for (const table of document.querySelectorAll("main .scroll table")) {
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    const button = element("button", head.textContent, { type: "button" });
    button.addEventListener("click", () => sortBy(head, column));
    head.setAttribute("aria-sort", "none");
    head.replaceChildren(button);
  });
}

function element(name, content = "", attributes = {}) {
  const made = document.createElement(name);
  if (content !== "") made.append(...[content].flat()); // texts are never read as markup
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

// Gallery: the samples that one method got right and another wrong.
const PER_PAGE = 24, SHOWN = 3;

async function unpack(text) {
  const binary = atob(text), bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).json();
}

function fill(select, options, chosen) {
  select.replaceChildren(...options.map(([value, text]) => element("option", text, { value })));
  select.value = chosen;
}

function gallery(groups) {
  const form = document.getElementById("filters").elements;
  let group, shown, page;

  function openGroup() {
    group = groups[form.group.value];
    const methods = group.methods.map((name, i) => [i, name]);
    const fixed = methods.map(([i]) => changed(i, 0, true).length);
    fill(form.method, methods, fixed.lastIndexOf(Math.max(...fixed)));
    fill(form.other, methods, 0);
    const truths = [...new Set(group.truths)].map((truth) => [truth, group.classes[truth]]);
    fill(form.truth, [["", "all"], ...truths.sort((a, b) => a[1].localeCompare(b[1]))], "");
    fill(form.seed, [["", "all"], ...[...new Set(group.seeds)].map((seed) => [seed, String(seed)])], "");
    filter();
  }

  function right(method, i) {
    const index = group.answers[method][3 * SHOWN * i];
    return index < 0 ? null : index === group.truths[i];
  }

  function changed(method, other, isFixed) {
    return [...group.truths.keys()].filter((i) => right(method, i) === isFixed && right(other, i) === !isFixed);
  }

  function filter() {
    const is = (select, value) => select.value === "" || Number(select.value) === value;
    shown = changed(form.method.value, form.other.value, form.kind.value === "fixed")
      .filter((i) => is(form.truth, group.truths[i]) && is(form.seed, group.seeds[i]));
    const hidden = (i) => !(group.samples[i] in group.thumbnails);
    shown.sort((a, b) => hidden(a) - hidden(b) || a - b); // images first
    page = 0;
    draw();
  }

  function draw() {
    const first = page * PER_PAGE, last = Math.min(first + PER_PAGE, shown.length);
    const counted = shown.length === 1 ? "1 image" : `${shown.length} images`;
    document.getElementById("count").textContent = last - first < shown.length ? `${counted}, here ${first + 1} to ${last}` : counted;
    document.getElementById("cards").replaceChildren(...shown.slice(first, last).map(card));
    const pages = document.getElementById("pages");
    pages.hidden = shown.length <= PER_PAGE;
    pages.children[0].disabled = page === 0;
    pages.children[1].disabled = last === shown.length;
  }

  function card(i) {
    const truth = group.classes[group.truths[i]], sample = group.samples[i], thumbnail = group.thumbnails[sample];
    const image = thumbnail ? [element("img", "", { src: thumbnail, alt: `sample ${sample}, ${truth}` })] : [];
    const place = [group.paths[i] ?? "", `sample ${sample}, seed ${group.seeds[i]}`].filter(Boolean).join(", ");
    const methods = [form.other.value, form.method.value].map((method) => answer(method, i));
    return element("li", [...image, element("h3", truth), element("p", place), ...methods]);
  }

  function answer(method, i) {
    const numbers = group.answers[method].slice(3 * SHOWN * i, 3 * SHOWN * (i + 1));
    const [classes, after, before] = [0, 1, 2].map((part) => numbers.slice(part * SHOWN, (part + 1) * SHOWN));
    const columns = before[0] < 0 ? [after] : [before, after];
    const share = (p) => p < 0 ? element("td", "-") : element("td", `${(p / 10).toFixed(1)}%`, { style: `--share: ${p / 10}%` });
    const rows = classes.map((one, at) => one < 0 ? null : element("tr", [
      element("th", group.classes[one], { scope: "row", ...(one === group.truths[i] ? { class: "right" } : {}) }),
      ...columns.map((column) => share(column[at])),
    ]));
    const verdict = right(method, i) ? "right" : "wrong";
    const caption = element("caption", [`${group.methods[method]}: `, element("span", verdict, { class: verdict })]);
    const names = columns.length === 2 ? ["class", "before", "after"] : ["class", "probability"];
    if (group.votes[method]) names[names.length - 1] = "votes";
    const head = element("thead", element("tr", names.map((name) => element("th", name, { scope: "col" }))));
    return element("table", [caption, head, element("tbody", rows.filter(Boolean))]);
  }

  fill(form.group, groups.map((one, i) => [i, one.name]), 0);
  for (const name of ["kind", "method", "other", "truth", "seed"]) form[name].addEventListener("change", filter);
  form.group.addEventListener("change", openGroup);
  document.getElementById("pages").addEventListener("click", (event) => {
    page += Number(event.target.dataset.step ?? 0);
    draw();
  });
  openGroup();
}

const data = document.getElementById("data");
if (data) unpack(data.textContent).then(gallery);
