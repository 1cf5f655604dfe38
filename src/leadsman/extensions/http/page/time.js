// Times and durations as people read them.

/** Seconds as text, in at most two units: 350 ms, 4.5 s, 45 s, 3 min 20 s, 2 h 5 min, 3 d 4 h. */
export function span(seconds, exact = false) {
	if (seconds == null || !Number.isFinite(seconds)) return "–";
	if (seconds < 0) seconds = 0;
	if (exact && seconds < 1) return `${Math.round(seconds * 1000)} ms`;
	if (exact && seconds < 10 && seconds % 1) return `${+seconds.toFixed(1)} s`;
	const whole = Math.round(seconds);
	if (whole < 60) return `${whole} s`;
	for (const [size, big, small, name, rest] of UNITS) {
		if (whole >= size) {
			const left = Math.floor((whole % size) / small);
			return left ? `${Math.floor(whole / size)} ${big} ${left} ${rest}` : `${Math.floor(whole / size)} ${name}`;
		}
	}
}

const UNITS = [
	[86400, "d", 3600, "d", "h"],
	[3600, "h", 60, "h", "min"],
	[60, "min", 1, "min", "s"],
];

const CLOCK = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const SHORT = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
const DAY = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" });

/** A time of day, with the date if it is not today. `at` is in milliseconds since 1970, as everywhere on this page. */
export function clock(at, now = Date.now()) {
	if (at == null) return "–";
	const text = CLOCK.format(at);
	return DAY.format(at) === DAY.format(now) ? text : `${DAY.format(at)} ${text}`;
}

/** The same without seconds, for axes. */
export const minutes = (at) => SHORT.format(at);

/** How long ago something was. */
export function ago(at, now) {
	if (at == null) return "never";
	const seconds = (now - at) / 1000;
	return seconds < 1.5 ? "now" : `${span(seconds)} ago`;
}

/** How long it takes until something is due. */
export function until(at, now) {
	if (at == null) return "–";
	const seconds = Math.ceil((at - now) / 1000);
	return seconds > 0 ? `in ${span(seconds)}` : "now";
}

/** An RFC 3339 time in milliseconds; null stays null. */
export const parse = (text) => (text == null ? null : Date.parse(text));

/** A line of evidence with its times, which are UTC there, as all others on this page. */
export const local = (line, now) =>
	line.replace(/(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\dZ)(?= \()/g, (_, day, time) => clock(Date.parse(`${day}T${time}`), now));

/** Bytes as text. */
export function size(bytes) {
	if (bytes < 1000) return `${bytes} B`;
	return bytes < 1e6 ? `${(bytes / 1e3).toFixed(bytes < 1e4 ? 1 : 0)} kB` : `${(bytes / 1e6).toFixed(1)} MB`;
}

/** "1 poll", "2 polls". */
export const counted = (count, one, many = `${one}s`) => `${count.toLocaleString()} ${count === 1 ? one : many}`;
