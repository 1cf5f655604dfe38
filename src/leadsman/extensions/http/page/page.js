// The page: three views of one model, kept current by one connection.

import { askToken } from "./actions.js";
import { announce, by, keep, put, reicon, set } from "./dom.js";
import { DeviceView } from "./device.js";
import { get, Live, sections, useToken } from "./live.js";
import { Model, TROUBLE } from "./model.js";
import { Overview, WORDS } from "./overview.js";
import { clock, span } from "./time.js";
import { TraceView } from "./trace.js";

const model = new Model();
const overview = new Overview(model, remember), deviceView = new DeviceView(model), traceView = new TraceView(model);
let view = "devices", loaded = false;

// What is drawn: at most once a frame, and only what has changed.

let asked = false;

function drawSoon() {
	if (asked) return;
	asked = true;
	// A page in the background has no frames, and is drawn when it is seen again.
	requestAnimationFrame(() => {
		asked = false;
		draw();
	});
}

function draw() {
	if (!loaded) return;
	const changed = model.changed;
	model.changed = new Set();
	announceTurns(changed);
	titled();
	if (view === "devices") overview.draw(changed);
	else if (view === "device" && changed.has(deviceView.name)) deviceView.draw();
	else if (view === "trace" && changed.size) traceView.draw();
}

/** Announce which devices got into trouble, or out of it. */
function announceTurns(changed) {
	const turned = [];
	for (const name of changed) {
		const status = model.devices.get(name)?.status, before = statuses.get(name);
		if (status) statuses.set(name, status);
		else statuses.delete(name);
		if (status && before && TROUBLE.has(status) !== TROUBLE.has(before)) turned.push(`${name}: ${WORDS[status]}`);
	}
	if (turned.length) announce(turned.length > 5 ? `${turned.length} devices have another status.` : turned.join(", "));
}

/** Once a second: countdowns and ages. */
function tick() {
	if (model.frozen != null) showLost();
	if (!loaded || document.hidden) return;
	if (view === "devices") overview.tick();
	else if (view === "device") deviceView.tick();
}

setInterval(tick, 1000);
document.addEventListener("visibilitychange", () => document.hidden || (drawSoon(), tick()));

// The views, by the part of the address after #

function route() {
	const [, name, coded] = /^#\/(device\/|trace)?(.*)$/.exec(location.hash) ?? [null, undefined, ""], rest = decoded(coded);
	view = name === "trace" ? "trace" : name ? "device" : "devices";
	for (const each of ["devices", "device", "trace"]) by(`view-${each}`).hidden = !loaded || each !== view;
	put(by("to-devices"), "aria-current", view === "trace" ? null : "page");
	put(by("to-trace"), "aria-current", view === "trace" ? "page" : null);
	if (!loaded) return;
	if (view === "device") openDevice(rest);
	else if (view === "trace") traceView.draw();
	else overview.arrange(), overview.head();
	titled();
}

/** The title of the tab: how many devices are in trouble, what is shown, and of which app. */
function titled() {
	const bad = model.troubled, what = view === "device" ? deviceView.name : view === "trace" ? "Trace" : null;
	const title = (bad ? `(${bad}) ` : "") + [what, model.app?.name, "leadsman"].filter(Boolean).join(" · ");
	if (document.title !== title) document.title = title;
}

function decoded(text) {
	try {
		return decodeURIComponent(text);
	} catch {
		return text; // a person typed it
	}
}

let place = 0, opened = null;

addEventListener("hashchange", () => {
	const before = view;
	if (before === "devices") place = scrollY;
	route();
	if (view === "devices") {
		scrollTo(0, place);
		overview.rows.draw();
		const again = overview.rows.shown.get(opened)?.querySelector("a");
		again?.focus({ preventScroll: true });
	} else {
		scrollTo(0, 0);
		opened = view === "device" ? deviceView.name : null;
		by(`${view}-title`)?.focus({ preventScroll: true });
	}
});

// The connection

async function load(stale) {
	const [document, trace] = await Promise.all([get("introspect"), get("trace")]);
	if (stale()) return;
	const begun = model.app && document.app?.started_at !== model.app.started_at;
	if (begun) model.forget();
	model.frozen = null;
	model.take(document, true);
	model.rows(trace.trace);
	remembered.clear();
	overview.rows.shown.forEach((_, name) => remember(name));
	set(by("app-name"), model.app?.name ?? "leadsman");
	if (!loaded) {
		loaded = true;
		by("waiting").hidden = true;
		route();
	}
	drawSoon();
}

let lostAt = null, nextTry = 0, refusal = "", statuses = new Map();

function state(word, more, why) {
	if (word === "locked") return void askToken(more, (token) => (useToken(token), live.hurry()));
	if (word === "live") {
		if (lostAt != null) announce(`Connected again, after ${span((Date.now() - lostAt) / 1000)}.`);
		lostAt = null;
		model.frozen = null;
		by("banner").hidden = true;
		document.body.dataset.connection = "live";
		set(by("connection-word"), "Live");
		drawSoon();
		return;
	}
	nextTry = more;
	refusal = why && `: ${why}`;
	if (lostAt == null) {
		lostAt = Date.now();
		model.frozen = model.now();
		document.body.dataset.connection = "lost";
		set(by("connection-word"), "No connection");
		announce("The connection to the app is lost. What is shown is from then.");
		if (loaded && view === "device") deviceView.draw();
	}
	showLost();
}

function showLost() {
	const wait = Math.ceil((nextTry - Date.now()) / 1000), when = wait > 0 ? `Trying again in ${wait} s.` : "Trying …";
	const shown = loaded ? " What is shown is from then." : "";
	set(by("banner-text"), `No connection to the app since ${clock(lostAt)} (${span((Date.now() - lostAt) / 1000)})${refusal}.${shown} ${when}`);
	by("banner").hidden = false;
}

function event(data) {
	model.event(data);
	if (model.doubted.size || model.traced || model.doubtful) askSoon();
	drawSoon();
}

const live = new Live(load, event, state);

by("again").addEventListener("click", () => live.hurry());
addEventListener("online", () => live.hurry());

// What events do not contain is asked for: a device after it has changed, and new rows of the trace. When many devices change
// at once, and from time to time, the whole document is asked for, less often the larger it is.

const FEW = 12, SOON = 40, PAUSE = 250;
let asking = false;

function askSoon(wait = SOON) {
	if (asking) return;
	asking = true;
	setTimeout(async () => {
		const names = [...model.doubted], { traced, doubtful, events } = model, whole = names.length > FEW || doubtful;
		model.doubted.clear();
		model.traced = model.doubtful = false;
		const after = model.trace.at(-1)?.number ?? 0;
		const describe = async (name) => model.take(await get(`introspect/${encodeURIComponent(name)}`), false);
		await Promise.all([
			...(whole ? [get("introspect").then((found) => model.take(found, true, events))] : names.map(describe)),
			view === "device" && (whole || names.includes(deviceView.name)) ? explain() : null,
			traced ? get(`trace?after=${after}`).then((rows) => model.rows(rows.trace)) : null,
		]).catch(() => null);
		asking = false;
		drawSoon();
		const more = model.doubted.size || model.traced || model.doubtful;
		if (more) askSoon(whole ? Math.max(PAUSE, model.devices.size) : PAUSE);
	}, wait);
}

// What happened before this page was opened is asked for when a device comes into view, many in one request.

const remembered = new Set(), wanted = new Set();

function remember(name) {
	if (remembered.has(name)) return;
	remembered.add(name);
	if (!wanted.size)
		setTimeout(async () => {
			const names = [...wanted];
			wanted.clear();
			model.take(await sections("recent,fields", names).catch(() => ({})), false);
			drawSoon();
		}, SOON);
	wanted.add(name);
}

function openDevice(name) {
	deviceView.show(name);
	remember(name);
	if (model.devices.has(name)) more(name);
}

/** What only the view of a device shows. */
async function more(name) {
	const [found] = await Promise.all([sections("ledger", [name]).catch(() => ({})), explain()]);
	model.take(found, false);
	drawSoon();
}

let asks = 0;

/** Why the device that is shown is silent: the answer to the last question counts. */
async function explain() {
	const { name } = deviceView, ask = ++asks, why = await get(`why/${encodeURIComponent(name)}`).catch(() => null);
	const device = model.devices.get(name);
	if (!why || !device || ask !== asks) return;
	device.why = why;
	model.changed.add(name);
}

async function refresh() {
	try {
		if (lostAt == null && loaded && !document.hidden) {
			const { events } = model;
			model.take(await get("introspect"), true, events);
			if (view === "device") await more(deviceView.name);
			drawSoon();
		}
	} catch {
		// The stream of events notices when the connection is lost.
	}
	setTimeout(refresh, Math.max(10000, model.devices.size * 20));
}

setTimeout(refresh, 10000);

// Keys

addEventListener("keydown", (event) => {
	if (event.ctrlKey || event.metaKey || event.altKey || by("ask").open) return;
	const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
	if (event.key === "Escape" && typing) return void (event.target.value ? ((event.target.value = ""), event.target.dispatchEvent(new Event("input"))) : event.target.blur());
	if (event.key === "Escape" && view !== "devices") return void (location.hash = "#/");
	const down = event.key === "ArrowDown" || (event.key === "j" && !typing), up = event.key === "ArrowUp" || (event.key === "k" && !typing);
	const inList = view === "devices" && event.target.tagName !== "SELECT";
	if (inList && (down || up)) overview.rows.step(down ? 1 : -1);
	else if (inList && !typing && event.key === "Home") overview.rows.focus(0);
	else if (inList && !typing && event.key === "End") overview.rows.focus(overview.rows.names.length - 1);
	else if (event.key === "/" && !typing) document.querySelector(view === "trace" ? "#view-trace input" : "#search").focus();
	else if (event.key === "t" && !typing) location.hash = "#/trace";
	else return;
	event.preventDefault();
});

by("skip").addEventListener("click", (event) => {
	event.preventDefault();
	by("main").focus();
});

// Colours

const THEMES = { auto: "as the system", light: "light", dark: "dark" };

function theme(chosen) {
	if (chosen === "auto") delete document.documentElement.dataset.theme;
	else document.documentElement.dataset.theme = chosen;
	reicon(by("theme").firstElementChild, chosen);
	set(by("theme-word"), `Colours: ${THEMES[chosen]}`);
	put(by("theme"), "title", `Colours: ${THEMES[chosen]}`);
}

theme(document.documentElement.dataset.theme ?? "auto");
by("theme").addEventListener("click", () => {
	const names = Object.keys(THEMES), now = document.documentElement.dataset.theme ?? "auto";
	const next = names[(names.indexOf(now) + 1) % names.length];
	theme(next);
	keep("theme", next);
});

route();
live.run();
