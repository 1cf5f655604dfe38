"""Reads a configuration as Home Assistant does: writes the keys out, lets components inherit, and renders templates."""

import json

import jinja2

KEYS = {
    "avty": "availability",
    "avty_mode": "availability_mode",
    "bri_tpl": "brightness_template",
    "cmd_off_tpl": "command_off_template",
    "cmd_on_tpl": "command_on_template",
    "cmd_t": "command_topic",
    "cmd_tpl": "command_template",
    "curr_temp_t": "current_temperature_topic",
    "curr_temp_tpl": "current_temperature_template",
    "dev_cla": "device_class",
    "en": "enabled_by_default",
    "ent_cat": "entity_category",
    "ent_pic": "entity_picture",
    "exp_aft": "expire_after",
    "frc_upd": "force_update",
    "ic": "icon",
    "json_attr_t": "json_attributes_topic",
    "json_attr_tpl": "json_attributes_template",
    "l_ver_t": "latest_version_topic",
    "l_ver_tpl": "latest_version_template",
    "max": "max",
    "max_temp": "max_temp",
    "min": "min",
    "min_temp": "min_temp",
    "mode": "mode",
    "mode_cmd_t": "mode_command_topic",
    "mode_cmd_tpl": "mode_command_template",
    "mode_stat_t": "mode_state_topic",
    "mode_stat_tpl": "mode_state_template",
    "modes": "modes",
    "name": "name",
    "ops": "options",
    "p": "platform",
    "pct_cmd_t": "percentage_command_topic",
    "pct_cmd_tpl": "percentage_command_template",
    "pct_stat_t": "percentage_state_topic",
    "pct_val_tpl": "percentage_value_template",
    "pl_cls": "payload_close",
    "pl_lock": "payload_lock",
    "pl_off": "payload_off",
    "pl_on": "payload_on",
    "pl_open": "payload_open",
    "pl_prs": "payload_press",
    "pl_stop": "payload_stop",
    "pl_unlk": "payload_unlock",
    "pos": "reports_position",
    "pos_open": "position_open",
    "pos_t": "position_topic",
    "pos_tpl": "position_template",
    "ptrn": "pattern",
    "schema": "schema",
    "set_pos_t": "set_position_topic",
    "set_pos_tpl": "set_position_template",
    "spd_rng_max": "speed_range_max",
    "stat_cla": "state_class",
    "stat_off": "state_off",
    "stat_on": "state_on",
    "stat_t": "state_topic",
    "stat_tpl": "state_template",
    "stat_val_tpl": "state_value_template",
    "step": "step",
    "sug_dsp_prc": "suggested_display_precision",
    "sup_dur": "support_duration",
    "sup_vol": "support_volume_set",
    "t": "topic",
    "temp_cmd_t": "temperature_command_topic",
    "temp_cmd_tpl": "temperature_command_template",
    "temp_stat_t": "temperature_state_topic",
    "temp_stat_tpl": "temperature_state_template",
    "temp_step": "temp_step",
    "temp_unit": "temperature_unit",
    "uniq_id": "unique_id",
    "unit_of_meas": "unit_of_measurement",
    "val_tpl": "value_template",
}
"""Abbreviations that leadsman uses (https://www.home-assistant.io/integrations/mqtt/#discovery-messages)."""
COMMON = {"platform", "name", "unique_id", "icon", "entity_category", "availability", "availability_mode"}
COMMON |= {"enabled_by_default", "entity_picture"}
STATE = {"state_topic", "value_template"}
COMMAND = {"command_topic", "command_template"}
ALLOWED = {
    "sensor": STATE
    | {"json_attributes_topic", "json_attributes_template"}
    | {
        "device_class",
        "expire_after",
        "force_update",
        "options",
        "suggested_display_precision",
        "state_class",
        "unit_of_measurement",
    },
    "binary_sensor": STATE | {"device_class", "expire_after", "force_update", "payload_on", "payload_off"},
    "number": STATE | COMMAND | {"device_class", "min", "max", "step", "mode", "unit_of_measurement"},
    "select": STATE | COMMAND | {"options"},
    "text": STATE | COMMAND | {"min", "max", "pattern"},
    "switch": STATE | COMMAND | {"payload_on", "payload_off", "state_on", "state_off"},
    "button": {"command_topic", "payload_press"},
    "light": {"schema", "state_topic", "state_template", "command_topic", "command_on_template", "command_off_template"}
    | {"brightness_template"},
    "climate": {"modes", "min_temp", "max_temp", "temp_step", "temperature_unit"}
    | {f"{each}_{word}" for each in ("mode", "temperature") for word in ("command_topic", "command_template")}
    | {f"{each}_{word}" for each in ("mode", "temperature") for word in ("state_topic", "state_template")}
    | {"current_temperature_topic", "current_temperature_template"},
    "cover": {"command_topic", "payload_open", "payload_close", "payload_stop", "position_open"}
    | {"position_topic", "position_template", "set_position_topic", "set_position_template"},
    "fan": COMMAND
    | {"state_topic", "state_value_template", "speed_range_max"}
    | {f"percentage_{word}" for word in ("command_topic", "command_template", "state_topic", "value_template")},
    "lock": STATE | {"command_topic", "payload_lock", "payload_unlock"},
    "siren": COMMAND | {"state_topic", "state_value_template", "support_duration", "support_volume_set"},
    **dict.fromkeys(("date", "datetime", "time"), STATE | COMMAND),
    "update": STATE | {"latest_version_topic", "latest_version_template"},
    "valve": STATE | COMMAND | {"reports_position", "position_open"},
}
"""Options of the platforms (https://www.home-assistant.io/integrations/#search/mqtt)."""
REQUIRED = {
    "sensor": {"state_topic"},
    "binary_sensor": {"state_topic"},
    "number": {"command_topic"},
    "select": {"command_topic", "options"},
    "text": {"command_topic"},
    "switch": {"command_topic"},
    "button": {"command_topic"},
    "light": {"command_topic", "command_on_template", "command_off_template"},
    "climate": {"temperature_command_topic", "temperature_command_template", "modes"},
    "update": {"state_topic", "latest_version_topic"},
    **{kind: {"command_topic"} for kind in ("date", "datetime", "time")},
    **{kind: {"command_topic"} for kind in ("cover", "fan", "lock", "siren", "valve")},
}

_ENVIRONMENT = jinja2.Environment(undefined=jinja2.StrictUndefined)
_ENVIRONMENT.filters["to_json"] = lambda value: json.dumps(value, ensure_ascii=False)


def entities(payload):
    """The entities of a configuration by their keys, each checked against the options of its platform."""
    document = json.loads(payload)
    assert document["dev"]["ids"]
    assert document["o"]["name"]
    found = {}
    for key, component in document["cmps"].items():
        entity = {KEYS[word]: value for word, value in component.items()}
        if "avty" in document:
            entity.setdefault("availability", document["avty"])
        if isinstance(entity.get("availability"), dict):  # one topic needs no list
            entity["availability"] = [entity["availability"]]
        platform = entity["platform"]
        if "stat_t" in document and platform not in ("button", "climate"):  # they leave out what they do not take
            entity.setdefault("state_topic", document["stat_t"])
        unknown = entity.keys() - COMMON - ALLOWED[platform]
        assert not unknown, f"{platform} takes no {unknown}"
        assert entity.keys() >= REQUIRED[platform] | {"unique_id", "name"}
        if "options" in entity and platform == "sensor":
            assert entity["device_class"] == "enum"
            assert entity["options"]
            assert not entity.keys() & {"state_class", "unit_of_measurement"}
        found[key] = entity
    return found


def rendered(template, **words):
    """The text that a template makes."""
    return _ENVIRONMENT.from_string(template).render(**words)


def state(entity, reading):
    """The state of an entity after a reading; None is unknown."""
    text = rendered(entity["value_template"], value_json=json.loads(json.dumps(reading)))
    return None if text == "None" else text


def command(entity, value):
    """What a command of a person makes of `value`."""
    return rendered(entity.get("command_template", "{{ value }}"), value=value)
