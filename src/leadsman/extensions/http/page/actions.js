// What a person may ask of a device, each time with a question before.

import { by, h, keep, kept, toast } from "./dom.js";
import { post } from "./live.js";

const ACTIONS = {
	poll: ["Poll now", "Reads it now; the schedule stays.", "is polled"],
	hold: ["Hold", "It is not polled again until somebody releases it.", "is on hold"],
	release: ["Release", "It is polled again, at its schedule.", "is released"],
	isolate: ["Isolate", "Its circuit is isolated: polls and retries end until somebody closes the circuit.", "is isolated"],
	close: ["Close circuit", "Its circuit is closed: it is polled again, and its failures are forgotten.", "has a closed circuit"],
};

/** The actions that make sense for a device now. */
function sensible(device) {
	const runtime = device.runtime;
	if (!runtime || device.main?.kind === "command") return [];
	const found = device.main.kind === "telemetry" ? ["poll"] : [];
	found.push(runtime.held ? "release" : "hold");
	if (runtime.circuit !== "isolated") found.push("isolate");
	if (runtime.circuit !== "closed") found.push("close");
	return found;
}

/** The buttons of a device. They stay the same elements while the actions do, so that the focus stays. */
export function drawActions(box, device, lost) {
	const wanted = sensible(device);
	if (box.dataset.actions !== wanted.join()) {
		box.dataset.actions = wanted.join();
		box.replaceChildren(
			...wanted.map((action) => h("button", { type: "button", "data-action": action, click: () => confirm(device, action) }, ACTIONS[action][0])),
		);
	}
	for (const button of box.children) button.disabled = lost;
}

function confirm(device, action) {
	const [title, effect, done] = ACTIONS[action], dialog = by("ask");
	const name = h("input", { id: "ask-by", maxlength: 100, autocomplete: "nickname", value: kept("name") });
	const go = h("button", { type: "submit", class: "primary", value: "go" }, title);
	const form = h(
		"form", { method: "dialog" },
		h("h2", { id: "ask-title" }, `${title}: `, h("span", {}, device.name)),
		h("p", {}, effect),
		h("label", {}, "Your name, for the log and the trace (optional)", name),
		h("p", { class: "buttons" }, h("button", { type: "button", click: () => dialog.close() }, "Cancel"), go),
	);
	form.addEventListener("submit", async (event) => {
		event.preventDefault();
		go.disabled = true;
		keep("name", name.value.trim());
		try {
			await post(`devices/${encodeURIComponent(device.name)}/${action}`, name.value.trim() ? { by: name.value.trim() } : {});
			toast(`${device.name} ${done}.`);
		} catch (error) {
			toast(`${device.name}: ${error.name === "TypeError" ? "the app did not answer" : error.message}`, true);
		}
		if (form.isConnected) dialog.close(); // else it asks something else by now
	});
	dialog.replaceChildren(form);
	dialog.showModal();
	go.focus();
}

/** Ask for the token that the app wants; `wrong`: the one that was sent. */
export function askToken(wrong, use) {
	const dialog = by("ask");
	if (dialog.open) return;
	const input = h("input", { type: "password", autocomplete: "current-password", required: true });
	const form = h(
		"form", { method: "dialog" },
		h("h2", { id: "ask-title" }, "This app wants a token"),
		wrong && h("p", { class: "lead bad", role: "alert" }, "The app says that this token is wrong."),
		h("p", {}, "It is the content of the secret file that the app was started with. This browser tab keeps it until it is closed."),
		h("label", {}, "Token", input),
		h("p", { class: "buttons" }, h("button", { type: "submit", class: "primary" }, "Go on")),
	);
	form.addEventListener("submit", () => use(input.value.trim()));
	dialog.replaceChildren(form);
	dialog.showModal();
}
