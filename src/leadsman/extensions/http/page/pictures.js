// Small pictures: the last values as a line, the outcomes of the last polls as bars, and the timeline of a device.

import { put, s } from "./dom.js";
import { clock, minutes } from "./time.js";

const WIDTH = 96, HEIGHT = 28;

/** A line through the last values of a field. */
export function sparkline() {
	const line = s("polyline", { class: "spark-line" }), dot = s("circle", { class: "spark-dot", r: 2 });
	const area = s("polygon", { class: "spark-area" });
	return s("svg", { class: "spark", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, "aria-hidden": "true" }, area, line, dot);
}

export function drawSparkline(svg, points) {
	const [area, line, dot] = svg.childNodes;
	put(svg, "class", points && points.length > 1 ? "spark" : "spark bare");
	if (!points?.length) return;
	let low = Infinity, high = -Infinity;
	for (const { value } of points) {
		if (value < low) low = value;
		if (value > high) high = value;
	}
	const y = (value) => (high === low ? HEIGHT / 2 : HEIGHT - 4 - ((value - low) / (high - low)) * (HEIGHT - 8));
	const first = points[0].at, reach = points.at(-1).at - first || 1;
	const x = (at) => 2 + ((at - first) / reach) * (WIDTH - 6);
	const places = points.map(({ at, value }) => `${x(at).toFixed(1)},${y(value).toFixed(1)}`);
	put(line, "points", places.join(" "));
	put(area, "points", `2,${HEIGHT} ${places.join(" ")} ${x(points.at(-1).at).toFixed(1)},${HEIGHT}`);
	put(dot, "cx", points.length > 1 ? WIDTH - 4 : 4);
	put(dot, "cy", y(points.at(-1).value).toFixed(1));
}

const CURVE = 150, BESIDE = 64;

/** The last values of a field over time, with axes, as wide as `width` pixels. `write` makes text of a value. */
export function curve(points, write, width) {
	const values = points.map(({ value }) => value), first = points[0].at, last = points.at(-1).at;
	let low = Math.min(...values), high = Math.max(...values);
	if (low === high) [low, high] = [low - 1, high + 1];
	const text = `${points.length} values from ${clock(first)} to ${clock(last)}, ${write(Math.min(...values))} to ${write(Math.max(...values))}`;
	const svg = s("svg", { class: "timeline", width, height: CURVE, viewBox: `0 0 ${width} ${CURVE}`, role: "img", "aria-label": text });
	const x = (at) => BESIDE + ((at - first) / (last - first || 1)) * (width - BESIDE - 6);
	const y = (value) => 8 + ((high - value) / (high - low)) * (CURVE - 36);
	for (const value of [low, (low + high) / 2, high]) {
		svg.append(s("text", { x: BESIDE - 6, y: y(value) + 4, class: "value" }, write(value)));
		svg.append(s("line", { x1: BESIDE, x2: width - 6, y1: y(value), y2: y(value), class: "rule" }));
	}
	axis(svg, x, first, last, last - first || 1, width, CURVE);
	svg.append(s("polyline", { class: "spark-line", points: points.map(({ at, value }) => `${x(at).toFixed(1)},${y(value).toFixed(1)}`).join(" ") }));
	for (const { at, value } of points) svg.append(s("circle", { class: "spark-dot", cx: x(at).toFixed(1), cy: y(value).toFixed(1), r: 2.5 }, s("title", {}, `${clock(at)} ${write(value)}`)));
	return svg;
}

const BARS = 30;
const HIGH = { ok: 12, retried: 16, failed: 22, skipped: 6, missed: 6, deferred: 6 };
const SAID = { ok: "read", retried: "read after retries", failed: "failed", skipped: "left out", missed: "missed", deferred: "deferred" };

/** The outcomes of the last polls, the newest on the right: the higher, the worse. */
export function bars() {
	const svg = s("svg", { class: "bars", viewBox: `0 0 ${BARS * 4} ${HEIGHT}`, role: "img" });
	for (let i = 0; i < BARS; i++) svg.append(s("rect", { x: i * 4 + 0.5, width: 3, rx: 1 }));
	return svg;
}

export function drawBars(svg, outcomes) {
	const shown = outcomes.slice(-BARS), counts = {};
	svg.childNodes.forEach((bar, i) => {
		const outcome = shown[i - (BARS - shown.length)];
		const high = outcome ? HIGH[outcome] : 2;
		put(bar, "class", outcome ? `bar-${outcome}` : "bar-none");
		put(bar, "y", String(HEIGHT - 2 - high));
		put(bar, "height", String(high));
		if (outcome) counts[outcome] = (counts[outcome] ?? 0) + 1;
	});
	const words = Object.entries(counts).map(([kind, count]) => `${count} ${SAID[kind]}`);
	put(svg, "aria-label", words.length ? `last polls: ${words.join(", ")}` : "no poll since this page was opened");
}

// The timeline

const LANES = ["polls", "retries", "circuit", "pauses", "gaps"];
const LANE = 30, TOP = 6, LEFT = 64;
const SHAPE = {
	reading: ["polls", "ok"], retried: ["polls", "retried"], recovered: ["polls", "ok"], failed: ["polls", "failed"],
	skipped: ["polls", "skipped"], missed: ["polls", "skipped"], call: ["retries", "call"],
};
const CIRCUIT = { open: "bad", half_open: "trial", isolated: "quiet", disabled: "quiet" };

/** The timeline of a device: five lanes over the last `range` milliseconds, as wide as `width` pixels. */
export function timeline(device, now, range, width) {
	const height = TOP + LANES.length * LANE + 22, start = now - range;
	const svg = s("svg", { class: "timeline", width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
	const x = (at) => LEFT + ((Math.max(start, Math.min(now, at)) - start) / range) * (width - LEFT - 6);
	const y = (lane) => TOP + LANES.indexOf(lane) * LANE + LANE / 2;
	for (const lane of LANES) {
		svg.append(s("text", { x: 0, y: y(lane) + 4, class: "lane" }, lane));
		svg.append(s("line", { x1: LEFT, x2: width - 6, y1: y(lane) + LANE / 2, y2: y(lane) + LANE / 2, class: "rule" }));
	}
	axis(svg, x, start, now, range, width, height);
	const band = (lane, from, to, kind, text) => {
		if (to < start || to <= from) return;
		const left = x(from), rect = { x: left, y: y(lane) - 7, width: Math.max(x(to) - left, 2), height: 14, rx: 3 };
		svg.append(s("rect", { ...rect, class: `band-${kind}` }, s("title", {}, text)));
	};
	bands(device, now, start, band);
	// A poll is a bar as in the strip of the last polls, as broad as its interval leaves room for.
	const every = ((device.main?.interval ?? 0) * 1000 * (width - LEFT)) / range, wide = Math.max(3, Math.min(14, every * 0.6));
	for (const mark of device.marks) {
		const shape = SHAPE[mark.kind];
		if (!shape || mark.at < start) continue;
		const [lane, kind] = shape, title = s("title", {}, `${clock(mark.at)} ${mark.text}`);
		const broad = kind === "call" ? 3 : wide, high = HIGH[kind] ?? 14, x0 = x(mark.at) - broad / 2;
		svg.append(s("rect", { x: x0, y: y(lane) + 11 - high, width: broad, height: high, rx: 1, class: `mark-${kind}` }, title));
	}
	return svg;
}

/** What lasts: the states of the circuit, pauses, holds and gaps. */
function bands(device, now, start, band) {
	const { runtime, marks, ledger } = device;
	for (const { since, until, cause, slots } of ledger?.gaps ?? [])
		band("gaps", Date.parse(since), until ? Date.parse(until) : now, "gap", `${cause === "dropped" ? `${slots.dropped} dropped` : "no reading"} since ${clock(Date.parse(since))}: ${cause.replaceAll("_", " ")}`);
	let open = null, held = null;
	for (const mark of marks) {
		if (mark.kind === "circuit") {
			if (open) band("circuit", open.at, mark.at, CIRCUIT[open.state], `circuit ${open.state}, ${clock(open.at)} – ${clock(mark.at)}`);
			open = CIRCUIT[mark.state] ? mark : null;
		} else if (mark.kind === "deferred") {
			const over = marks.find((each) => each.at > mark.at && SHAPE[each.kind]);
			band("pauses", mark.at, Math.min(mark.until, over?.at ?? mark.until, now), "quiet", mark.text);
		} else if (mark.kind === "held") held = mark.at;
		else if (mark.kind === "released" && held) {
			band("pauses", held, mark.at, "bad", `on hold, ${clock(held)} – ${clock(mark.at)}`);
			held = null;
		} else if (ledger) continue;
		else if (mark.kind === "gap") band("gaps", mark.at, mark.until, "gap", mark.text);
		else if (mark.kind === "recovered" && mark.since) band("gaps", mark.since, mark.at, "gap", mark.text);
	}
	if (runtime && CIRCUIT[runtime.circuit])
		band("circuit", open?.at ?? Date.parse(runtime.opened_at ?? "") ?? start, now, CIRCUIT[runtime.circuit], `circuit ${runtime.circuit}`);
	if (runtime?.held) band("pauses", held ?? device.since ?? start, now, "bad", "on hold");
	if (device.since && !ledger) band("gaps", device.since, now, "gap", `no reading since ${clock(device.since)}`);
}

function axis(svg, x, start, now, range, width, height) {
	const steps = [10, 30, 60, 120, 300, 600, 1800, 3600, 10800, 21600].map((each) => each * 1000);
	const step = steps.find((each) => range / each <= Math.max(2, (width - LEFT) / (each < 60000 ? 110 : 80))) ?? steps.at(-1);
	for (let at = Math.ceil(start / step) * step; at <= now; at += step) {
		svg.append(s("line", { x1: x(at), x2: x(at), y1: TOP, y2: height - 20, class: "tick" }));
		const text = step < 60000 ? clock(at, now) : minutes(at);
		if (x(at) < width - 26) svg.append(s("text", { x: x(at), y: height - 6, class: "axis" }, text));
	}
}
