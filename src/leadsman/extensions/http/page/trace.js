// The trace: each failed call, what was decided, and why.

import { by, h, set } from "./dom.js";
import { clock, parse, span } from "./time.js";
import { inWords } from "./model.js";
import { hrefOf } from "./overview.js";

const STEP = 100; // rows that are shown at first, and added at a time

/** A table of rows of the trace, the newest first, with the tracebacks to be opened. */
export function traceTable(label) {
	const body = h("tbody"), more = h("button", { type: "button" }, "Show older rows"), none = h("p", { class: "empty" });
	const head = ["Time", "Device", "What", "Attempt", "Error"].map((each) => h("th", { scope: "col" }, each));
	const grid = h("table", { class: "trace", "aria-label": label }, h("thead", {}, h("tr", {}, head)), body);
	const box = h("div", {}, grid, none, more);
	let limit = STEP, rows = [], made = new Map();
	const draw = (found, empty = "No call has failed.") => {
		rows = withoutSteps(found);
		const shown = rows.slice(-limit).reverse(), next = new Map();
		const elements = shown.map((row) => {
			const element = made.get(row.number) ?? line(row);
			next.set(row.number, element);
			return element;
		});
		if (elements.length !== made.size || elements.some((each, i) => body.children[i] !== each)) body.replaceChildren(...elements);
		made = next;
		grid.hidden = !shown.length;
		none.hidden = shown.length > 0;
		set(none, empty);
		more.hidden = rows.length <= limit;
	};
	more.addEventListener("click", () => {
		limit += STEP;
		draw(rows);
	});
	return { box, draw };
}

/** The rows, but for the steps of a circuit around a probe that failed: the probe is one row. */
function withoutSteps(rows) {
	const before = new Map(), steps = new Set();
	for (const row of rows) {
		const last = before.get(row.handler);
		if (row.reason === "probe" && last?.reason === "circuit half_open") steps.add(last);
		if (row.reason === "circuit open" && last?.reason === "probe") steps.add(row);
		before.set(row.handler, row);
	}
	return rows.filter((row) => !steps.has(row));
}

function line(row) {
	const then = row.delay == null ? "" : row.reason === "deferred" ? ` for ${span(row.delay, true)}` : ` in ${span(row.delay, true)}`;
	const what = [inWords(row.reason), then, row.by ? ` by ${row.by}` : ""].join("");
	const about = [row.policy && `policy ${row.policy}`, row.breaker && `circuit ${row.breaker}`].filter(Boolean);
	const error = row.error_type ? `${row.error_type}: ${row.error_message ?? ""}` : "";
	const details = row.traceback
		? h("details", {}, h("summary", {}, error), h("p", { class: "dim" }, about.join(" · ")), h("pre", { tabindex: "0" }, row.traceback))
		: error;
	const at = parse(row.at);
	return h(
		"tr", { "data-reason": row.reason },
		h("td", { class: "t-time" }, h("time", { datetime: row.at }, clock(at))),
		h("td", { class: "t-device" }, h("a", { href: hrefOf(row.handler) }, row.handler)),
		h("td", { class: "t-what" }, what),
		h("td", { class: "t-attempt" }, row.attempt == null ? "" : String(row.attempt)),
		h("td", { class: "t-error" }, details),
	);
}

export class TraceView {
	constructor(model) {
		this.model = model;
		this.search = h("input", { type: "search", placeholder: "Filter by device, reason or error", "aria-label": "Filter by device, reason or error", "aria-keyshortcuts": "/", autocomplete: "off", spellcheck: "false" });
		this.reason = h("select", { "aria-label": "What" });
		this.count = h("p", { id: "trace-count" });
		this.table = traceTable("Trace");
		this.reasons = "";
		this.search.addEventListener("input", () => this.draw());
		this.reason.addEventListener("change", () => this.draw());
		by("view-trace").append(
			h("div", { class: "title" }, h("h1", { id: "trace-title", tabindex: "-1" }, "Trace"), this.count),
			h("form", { class: "filter", role: "search", "aria-label": "Trace", submit: (event) => event.preventDefault() }, this.search, h("label", { class: "select" }, h("span", {}, "What"), this.reason)),
			h("div", { class: "card" }, this.table.box),
		);
	}

	draw() {
		const rows = this.model.trace, reasons = [...new Set(rows.map((row) => row.reason))].sort();
		if (reasons.join() !== this.reasons) {
			this.reasons = reasons.join();
			const chosen = this.reason.value;
			this.reason.replaceChildren(h("option", { value: "" }, "everything"), ...reasons.map((each) => h("option", { value: each }, inWords(each))));
			this.reason.value = reasons.includes(chosen) ? chosen : "";
		}
		const words = this.search.value.trim().toLowerCase(), reason = this.reason.value;
		const found = rows.filter((row) => (!reason || row.reason === reason) && (!words || text(row).includes(words)));
		set(this.count, found.length === rows.length ? `${rows.length.toLocaleString()} rows` : `${found.length.toLocaleString()} of ${rows.length.toLocaleString()} rows`);
		this.table.draw(found, rows.length ? "No row matches." : "No call has failed since the app was started.");
	}
}

const text = (row) => [row.handler, row.reason, row.error_type, row.error_message, row.by].join(" ").toLowerCase();
