// Makes elements. What a device, a broker or a person wrote becomes text, never markup: nothing here parses HTML.

const SVG = "http://www.w3.org/2000/svg";

/** An element. Children are elements or text; props are attributes, and functions are listeners. */
export function h(tag, props, ...children) {
	return made(document.createElement(tag), props, children);
}

/** An element of SVG. */
export function s(tag, props, ...children) {
	return made(document.createElementNS(SVG, tag), props, children);
}

function made(element, props, children) {
	for (const [name, value] of Object.entries(props ?? {})) {
		if (typeof value === "function") element.addEventListener(name, value);
		else if (value === true) element.setAttribute(name, "");
		else if (value !== false && value != null) element.setAttribute(name, value);
	}
	element.append(...children.flat().filter((each) => each != null && each !== false));
	return element;
}

/** One of the icons in index.html. */
export function icon(name) {
	return s("svg", { class: "icon", "aria-hidden": "true" }, s("use", { href: `#i-${name}` }));
}

/** Change an icon to another one. */
export function reicon(svg, name) {
	const use = svg.firstChild;
	if (use.getAttribute("href") !== `#i-${name}`) use.setAttribute("href", `#i-${name}`);
}

/** Set a text, if it is another one: a change costs layout, and screen readers may read it. */
export function set(element, text) {
	if (element.textContent !== text) element.textContent = text;
}

/** Set an attribute, if it is another one; null removes it. */
export function put(element, name, value) {
	if (value == null) element.removeAttribute(name);
	else if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}

/** What this browser has kept in a storage; null if it keeps nothing. */
export function kept(name, storage = "localStorage") {
	try {
		return globalThis[storage].getItem(`leadsman-${name}`);
	} catch {
		return null;
	}
}

/** Keep a text in a storage of this browser. One that keeps nothing forgets it with the page. */
export function keep(name, text, storage = "localStorage") {
	try {
		globalThis[storage].setItem(`leadsman-${name}`, text);
	} catch {
		return;
	}
}

/** The element with an id. */
export const by = (id) => document.getElementById(id);

/** Tell those who do not see the page. */
export function announce(text) {
	by("said").textContent = text;
}

let fading = 0;

/** Tell everybody, for a few seconds. */
export function toast(text, bad = false) {
	const box = by("toast");
	box.textContent = text;
	box.className = bad ? "bad" : "";
	box.hidden = false;
	announce(text);
	clearTimeout(fading);
	fading = setTimeout(() => (box.hidden = true), bad ? 10000 : 5000);
}
