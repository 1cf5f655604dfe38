"""Telegrams of meters of several countries and years, and what they say. Numbers that name a meter are zeros."""

import re
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadsman.adapters.serial.checksums import crc16_arc
from leadsman.adapters.serial.framing import Stream
from leadsman.adapters.serial.metering import P1Framer
from leadsman.errors import GarbledData
from p1meter2mqtt.decoding import KINDS, decode
from p1meter2mqtt.payloads import Meter


def telegram(*lines, crc=True):
    content = "\r\n".join([lines[0], "", *lines[1:], "!"]).encode()
    return content + (f"{crc16_arc(content):04X}" if crc else "").encode() + b"\r\n"


def said(data):
    """What is published of a telegram that came over a line."""
    (whole,) = Stream(P1Framer()).feed(data)
    return decode(whole).model_dump(exclude_none=True)


def utc(*when):
    return datetime(*when, tzinfo=UTC)


TELEGRAMS = {
    "Netherlands, DSMR 2.2, gas by the hour on two lines": (
        telegram(
            "/ISk5\\2MT382-1004",
            "0-0:96.1.1(00000000000000)",
            "1-0:1.8.1(00001.001*kWh)",
            "1-0:1.8.2(00002.002*kWh)",
            "1-0:2.8.1(00003.003*kWh)",
            "1-0:2.8.2(00004.004*kWh)",
            "0-0:96.14.0(0001)",
            "1-0:1.7.0(0001.01*kW)",
            "1-0:2.7.0(0000.00*kW)",
            "0-0:17.0.0(0999.00*kW)",
            "0-0:96.3.10(1)",
            "0-0:96.13.1()",
            "0-0:96.13.0()",
            "0-1:24.1.0(3)",
            "0-1:96.1.0(000000000000)",
            "0-1:24.3.0(161107190000)(00)(60)(1)(0-1:24.2.1)(m3)",
            "(00749.123)",
            "0-1:24.4.0(1)",
            crc=False,
        ),
        {
            "energy_used_tariff_1": 1.001,
            "energy_used_tariff_2": 2.002,
            "energy_delivered_tariff_1": 3.003,
            "energy_delivered_tariff_2": 4.004,
            "tariff": 1,
            "power_used": 1.01,
            "power_delivered": 0.0,
            "gas": 749.123,
        },
    ),
    "Netherlands, DSMR 3, gas on one line, as the specification has it": (
        telegram(
            "/ISk5\\2MT382-1000",
            "1-0:1.8.1(12345.678*kWh)",
            "0-1:96.1.0(00000000000000000000000000000000)",
            "0-1:24.1.0(03)",
            "0-1:24.3.0(090212160000)(00)(60)(1)(0-1:24.2.1)(m3)(00437.631)",
            "0-1:24.4.0(1)",
            crc=False,
        ),
        {"energy_used_tariff_1": 12345.678, "gas": 437.631},
    ),
    "Netherlands, DSMR 3, heat by the hour": (
        telegram(
            "/KMP5 KA6U000000000000",
            "1-0:1.8.1(00181.000*kWh)",
            "0-1:24.1.0(4)",
            "0-1:24.3.0(130504210000)(00)(60)(1)(0-1:24.2.1)(GJ)",
            "(00012.345)",
            crc=False,
        ),
        {"energy_used_tariff_1": 181.0, "heat": 12.345},
    ),
    "Netherlands, DSMR 4.2": (
        telegram(
            "/KFM5KAIFA-METER",
            "1-3:0.2.8(42)",
            "0-0:1.0.0(161113205757W)",
            "0-0:96.1.1(0000000000000000000000000000000000)",
            "1-0:1.8.1(001581.123*kWh)",
            "1-0:1.8.2(001435.706*kWh)",
            "1-0:2.8.1(000000.000*kWh)",
            "1-0:2.8.2(000000.000*kWh)",
            "0-0:96.14.0(0002)",
            "1-0:1.7.0(02.027*kW)",
            "1-0:2.7.0(00.000*kW)",
            "1-0:99.97.0(3)(0-0:96.7.19)(000104180320W)(0000237126*s)(000101000001W)(2147583646*s)",
            "0-0:96.13.0()",
            "1-0:31.7.0(000*A)",
            "1-0:51.7.0(006*A)",
            "1-0:71.7.0(002*A)",
            "1-0:21.7.0(00.170*kW)",
            "0-1:24.1.0(003)",
            "0-1:96.1.0(0000000000000000000000000000000000)",
            "0-1:24.2.1(161129200000W)(00981.443*m3)",
        ),
        {
            "energy_used_tariff_1": 1581.123,
            "energy_used_tariff_2": 1435.706,
            "energy_delivered_tariff_1": 0.0,
            "energy_delivered_tariff_2": 0.0,
            "tariff": 2,
            "power_used": 2.027,
            "power_delivered": 0.0,
            "amperes_l1": 0.0,
            "amperes_l2": 6.0,
            "amperes_l3": 2.0,
            "gas": 981.443,
            "gas_at": utc(2016, 11, 29, 19),
        },
    ),
    "Netherlands, DSMR 5, a heat meter and a water meter; a channel without a meter": (
        telegram(
            "/ISk5\\2MT382-1000",
            "1-3:0.2.8(50)",
            "1-0:1.7.0(00.244*kW)",
            "1-0:32.7.0(0230.0*V)",
            "1-0:31.7.0(0.48*A)",
            "0-1:24.1.0(012)",
            "0-1:96.1.0(0000000000000000000000000000000000)",
            "0-1:24.2.1(200426223325S)(00246.138*GJ)",
            "0-2:24.1.0(007)",
            "0-2:24.2.1(200426223001S)(00247.138*m3)",
            "0-3:24.1.0(003)",
            "0-3:96.1.0()",
        ),
        {
            "power_used": 0.244,
            "volts_l1": 230.0,
            "amperes_l1": 0.48,
            "heat": 246.138,
            "heat_at": utc(2020, 4, 26, 20, 33, 25),
            "water": 247.138,
            "water_at": utc(2020, 4, 26, 20, 30, 1),
        },
    ),
    "Netherlands, DSMR 5, a gas meter that cannot be read": (
        telegram(
            "/Ene5\\XS210 ESMR 5.0",
            "1-0:1.7.0(00.244*kW)",
            "0-1:24.1.0(003)",
            "0-1:24.2.1(632525252525S)(00000.000)",
            "0-2:24.1.0(007)",
            "0-2:24.2.1(632525252525S)(00000.000*m3)",
            "0-3:24.1.0(004)",
            "0-3:24.2.1(000101000000W)(00000.000*GJ)",
        ),
        {"power_used": 0.244},
    ),
    "Netherlands, WarmteLink, a heat meter alone": (
        telegram("/FLD5NWA-HEAT", "1-3:0.2.8(50)", "0-1:24.1.0(004)", "0-1:24.2.1(260215200523W)(240.860*GJ)"),
        {"heat": 240.86, "heat_at": utc(2026, 2, 15, 19, 5, 23)},
    ),
    "Netherlands, hot and cold water, cooling in kWh": (
        telegram(
            "/ISk5\\2MT382-1000",
            "0-1:24.1.0(006)",
            "0-1:24.2.1(200426223325S)(00012.500*m3)",
            "0-2:24.1.0(007)",
            "0-2:24.2.1(200426223325S)(00045.250*m3)",
            "0-3:24.1.0(010)",
            "0-3:24.2.1(200426223325S)(00100.000*kWh)",
        ),
        {
            "hot_water": 12.5,
            "hot_water_at": utc(2020, 4, 26, 20, 33, 25),
            "water": 45.25,
            "water_at": utc(2020, 4, 26, 20, 33, 25),
            "cold": 0.36,
            "cold_at": utc(2020, 4, 26, 20, 33, 25),
        },
    ),
    "Belgium, Fluvius, gas that is not corrected, and water": (
        telegram(
            "/FLU5\\253000000_A",
            "0-0:96.1.4(50217)",
            "0-0:1.0.0(260301120000W)",
            "1-0:1.8.1(000123.456*kWh)",
            "1-0:1.4.0(02.351*kW)",
            "1-0:1.6.0(200509134558S)(02.589*kW)",
            "0-0:98.1.0(3)(1-0:1.6.0)(1-0:1.6.0)(200501000000S)(632525252525W)(03.695*kW)",
            "1-0:1.7.0(00.250*kW)",
            "0-0:17.0.0(999.9*kW)",
            "1-0:31.4.0(999*A)",
            "0-1:24.1.0(003)",
            "0-1:96.1.1(00000000000000000000000000000000)",
            "0-1:24.4.0(1)",
            "0-1:24.2.3(260301115500W)(00112.384*m3)",
            "0-2:24.1.0(007)",
            "0-2:96.1.1(00000000000000000000000000000000)",
            "0-2:24.2.1(260301115500W)(00872.234*m3)",
        ),
        {
            "energy_used_tariff_1": 123.456,
            "power_used": 0.25,
            "gas": 112.384,
            "gas_at": utc(2026, 3, 1, 10, 55),
            "water": 872.234,
            "water_at": utc(2026, 3, 1, 10, 55),
        },
    ),
    "Belgium, water before gas, and a gas meter that was exchanged": (
        telegram(
            "/FLU5\\253000000_A",
            "0-1:24.2.1(260301115500W)(00872.234*m3)",
            "0-1:24.1.0(007)",
            "0-2:24.1.0(003)",
            "0-2:24.2.3(240110080000W)(05120.001*m3)",
            "0-3:24.1.0(003)",
            "0-3:24.2.3(260301115500W)(00112.384*m3)",
        ),
        {
            "gas": 112.384,
            "gas_at": utc(2026, 3, 1, 10, 55),
            "water": 872.234,
            "water_at": utc(2026, 3, 1, 10, 55),
        },
    ),
    "Belgium, two water meters, of which neither is the other's successor": (
        telegram(
            "/FLU5\\253000000_A",
            "1-0:1.7.0(00.250*kW)",
            "0-1:24.1.0(007)",
            "0-1:24.2.1(260301115500W)(00872.234*m3)",
            "0-2:24.1.0(007)",
            "0-2:24.2.1(260301115500W)(00001.234*m3)",
        ),
        {"power_used": 0.25},
    ),
    "Luxembourg, Smarty": (
        telegram(
            "/Lux5\\253000000_A",
            "1-3:0.2.8(42)",
            "0-0:1.0.0(180227111524W)",
            "0-0:42.0.0(00000000000000000000000000000000)",
            "1-0:1.8.0(000023.456*kWh)",
            "1-0:2.8.0(000001.000*kWh)",
            "1-0:3.8.0(000000.007*kvarh)",
            "1-0:1.7.0(00.150*kW)",
            "1-0:2.7.0(00.000*kW)",
            "1-0:3.7.0(00.000*kvar)",
            "0-0:17.0.0(77.4*kVA)",
            "1-0:32.7.0(229.0*V)",
            "1-0:31.7.0(000*A)",
            "0-1:24.1.0(003)",
            "0-1:24.2.1(180227110000W)(00005.123*m3)",
        ),
        {
            "energy_used": 23.456,
            "energy_delivered": 1.0,
            "power_used": 0.15,
            "power_delivered": 0.0,
            "volts_l1": 229.0,
            "amperes_l1": 0.0,
            "gas": 5.123,
            "gas_at": utc(2018, 2, 27, 10),
        },
    ),
    "Sweden, Aidon": (
        telegram(
            "/ADN9 6534",
            "0-0:1.0.0(211028141615W)",
            "1-0:1.8.0(00001024.123*kWh)",
            "1-0:2.8.0(00000000.000*kWh)",
            "1-0:3.8.0(00000000.012*kVArh)",
            "1-0:1.7.0(0002.350*kW)",
            "1-0:2.7.0(0000.000*kW)",
            "1-0:21.7.0(0000.800*kW)",
            "1-0:32.7.0(230.1*V)",
            "1-0:52.7.0(231.1*V)",
            "1-0:72.7.0(229.9*V)",
            "1-0:31.7.0(003.5*A)",
            "1-0:51.7.0(001.0*A)",
            "1-0:71.7.0(002.5*A)",
        ),
        {
            "energy_used": 1024.123,
            "energy_delivered": 0.0,
            "power_used": 2.35,
            "power_delivered": 0.0,
            "volts_l1": 230.1,
            "volts_l2": 231.1,
            "volts_l3": 229.9,
            "amperes_l1": 3.5,
            "amperes_l2": 1.0,
            "amperes_l3": 2.5,
        },
    ),
    "Hungary, totals and tariffs": (
        telegram(
            "/SAG5SAG-METER",
            "0-0:1.0.0(200511155850S)",
            "0-0:96.14.0(0001)",
            "1-0:1.8.0(000173.640*kWh)",
            "1-0:1.8.1(000047.719*kWh)",
            "1-0:1.8.2(000125.921*kWh)",
            "1-0:1.8.3(000000.000*kWh)",
            "1-0:2.8.0(000627.177*kWh)",
            "1-0:15.8.0(000800.817*kWh)",
            "1-0:13.7.0(0.954)",
            "1-0:14.7.0(49.950*Hz)",
            "1-0:1.7.0(00.000*kW)",
            "1-0:2.7.0(00.302*kW)",
        ),
        {
            "tariff": 1,
            "energy_used": 173.64,
            "energy_used_tariff_1": 47.719,
            "energy_used_tariff_2": 125.921,
            "energy_delivered": 627.177,
            "power_used": 0.0,
            "power_delivered": 0.302,
        },
    ),
    "Austria, Sagemcom T210-D-r, in Wh and W": (
        telegram(
            "/EST5\\253710000_A",
            "1-3:0.2.8(50)",
            "0-0:1.0.0(221006155014S)",
            "1-0:1.8.0(006545766*Wh)",
            "1-0:1.8.1(005017120*Wh)",
            "1-0:1.7.0(000000286*W)",
            "1-0:2.8.0(000000058*Wh)",
            "1-0:2.7.0(000000000*W)",
            "1-0:3.8.0(000000747*varh)",
        ),
        {
            "energy_used": 6545.766,
            "energy_used_tariff_1": 5017.12,
            "energy_delivered": 0.058,
            "power_used": 0.286,
            "power_delivered": 0.0,
        },
    ),
    "Germany, EasyMeter Q3D": (
        telegram(
            "/ESY5Q3DB1024 V3.04",
            "1-0:0.0.0*255(0000000000000)",
            "1-0:1.8.0*255(00052185.7825309*kWh)",
            "1-0:2.8.0*255(00019949.3221493*kWh)",
            "1-0:21.7.0*255(000747.85*W)",
            "1-0:1.7.0*255(002124.86*W)",
            "1-0:96.5.5*255(80)",
            "0-0:96.1.255*255(0000000000000)",
            crc=False,
        ),
        {"energy_used": 52185.7825309, "energy_delivered": 19949.3221493, "power_used": 2.12486},
    ),
    "a value of an earlier month behind that of now": (
        telegram("/X", "1-0:1.8.0*255(00100.000*kWh)", "1-0:1.8.0*01(00090.000*kWh)", "1-0:1.8.0*02(00080.000*kWh)"),
        {"energy_used": 100.0},
    ),
    "units that are unknown, or missing": (
        telegram(
            "/X",
            "1-0:1.8.1(1.0*kvarh)",
            "1-0:1.8.2(2.0)",
            "1-0:32.7.0(3.0*A)",
            "0-1:24.1.0(003)",
            "0-1:24.2.1(200426223325S)(4.0*kWh)",
            "1-0:1.7.0(5.0*kW)",
        ),
        {"power_used": 5.0},
    ),
}


@pytest.mark.parametrize("name", TELEGRAMS)
def test_a_telegram_says(name):
    data, values = TELEGRAMS[name]

    assert said(data) == values


ODD = [
    "0-0:96.14.0(day)",
    "0-0:96.14.0()",
    "1-0:1.8.1(-00000.001*kWh)",
    "1-0:2.8.0(x*kWh)",
    "0-1:24.2.1(200426223325S)(-1.5*m3)",
    "0-1:24.2.1(200426223325S)(*m3)",
]


@pytest.mark.parametrize("odd", ODD)
def test_a_value_that_makes_no_sense_is_left_out_or_where_bits_may_be_wrong_refuses_the_telegram(odd):
    lines = ("/X", "0-1:24.1.0(003)", odd, "1-0:1.7.0(1*kW)", "1-0:2.7.0(-2*kW)")

    assert said(telegram(*lines)) == {"power_used": 1.0, "power_delivered": -2.0}
    with pytest.raises(GarbledData, match="and no number|never below zero"):
        said(telegram(*lines, crc=False))


@pytest.mark.parametrize("kind", ["", "(000)", "(002)", "(005)", "(008)", "(013)", "(015)", "(x)", "()"])
def test_a_meter_of_a_kind_that_is_unknown_gives_nothing(kind):
    lines = [f"0-1:24.1.0{kind}"] if kind else []

    assert said(telegram("/X", *lines, "0-1:24.2.1(200426223325S)(1.5*m3)", "1-0:1.7.0(1*kW)")) == {"power_used": 1.0}


@given(
    st.dictionaries(st.integers(1, 4), st.tuples(st.integers(0, 30), st.sampled_from(["m3", "GJ", "kWh", "", "Wh"])))
)
def test_no_number_has_another_unit_or_quantity_than_its_field(meters):
    lines = [f"0-{channel}:24.1.0({kind:03d})" for channel, (kind, _) in meters.items()]
    lines += [f"0-{channel}:24.2.1(200426223325S)({channel}*{unit})" for channel, (_, unit) in meters.items()]

    found = said(telegram("/X", "1-0:1.7.0(1*kW)", *lines))

    for field, value in found.items():
        if field.endswith("_at") or field == "power_used":
            continue
        given = [(kind, unit) for channel, (kind, unit) in meters.items() if KINDS.get(kind, ("",))[0] == field]
        expected = [unit for kind, unit in given if unit in KINDS[kind][1]]
        assert len(expected) == 1
        assert value in [
            pytest.approx(channel * float(KINDS[kind][1].get(unit, "nan")))
            for channel, (kind, unit) in meters.items()
            if KINDS.get(kind, ("",))[0] == field
        ]


@given(
    st.lists(
        st.one_of(
            st.text("0123456789-:.()*kWhm3GJSW/!\r\n", max_size=40),
            st.sampled_from([line for data, _ in TELEGRAMS.values() for line in data.decode().splitlines()]),
        ),
        max_size=12,
    )
)
def test_whatever_a_telegram_says_it_is_a_payload_or_a_named_error(lines):
    try:
        found = decode("\r\n".join(lines).encode())
    except GarbledData:
        return
    assert isinstance(found, Meter)


def test_what_is_measured_has_the_unit_and_the_class_that_a_home_needs():
    fields = Meter.model_fields
    sensors = {
        name: sensor
        for name, field in fields.items()
        for sensor in field.metadata
        if re.fullmatch("gas|water|hot_water|heat|cold|energy_.*", name)
    }

    assert {name: (sensor.device_class, sensor.unit, sensor.state_class) for name, sensor in sensors.items()} == {
        **{name: ("energy", "kWh", "total_increasing") for name in fields if name.startswith("energy_")},
        "gas": ("gas", "m³", "total_increasing"),
        "water": ("water", "m³", "total_increasing"),
        "hot_water": ("water", "m³", "total_increasing"),
        "heat": ("energy", "GJ", "total_increasing"),
        "cold": ("energy", "GJ", "total_increasing"),
    }
