"""Advertisements that several radios deliver become one."""

from hypothesis import given
from hypothesis import strategies as st

from leadsman.adapters.ble import Advertisement
from leadsman.adapters.ble.advertisement import MAX_ENTRIES
from leadsman.adapters.ble.radios import SIGNAL, WINDOW, Reception

ADDRESS = "AA:BB:CC:DD:EE:FF"
RADIOS = ("hci0", "attic", "cellar")
SERVICE = "0000fcd2-0000-1000-8000-00805f9b34fb"


def sent(number, rssi=-60, **more):
    """The transmission with this number."""
    return Advertisement(ADDRESS, None, rssi, (), {}, {SERVICE: number.to_bytes(4, "big")})._replace(**more)


@st.composite
def deliveries(draw):
    """Transmissions with values of their own, half a second apart. Each radio misses some, and delivers the others in
    their order and late, but all within the window."""
    found = []
    for radio in RADIOS:
        lag = draw(st.floats(0, WINDOW / 3))
        for number in range(draw(st.integers(1, 12))):
            if draw(st.booleans()):
                found.append((number * 0.5 + lag, radio, number))
    return sorted(found)


@given(deliveries())
def test_each_transmission_that_a_radio_hears_is_passed_on_once(heard):
    reception = Reception()

    passed = [(number, reception.hear(radio, sent(number), None, at) is not None) for at, radio, number in heard]

    assert sorted(number for number, passes in passed if passes) == sorted({number for _, _, number in heard})


@given(deliveries(), st.lists(st.integers(-100, -30), min_size=3, max_size=3))
def test_the_strength_is_that_of_the_radio_that_hears_best(heard, strengths):
    reception, known = Reception(), {}

    for at, radio, number in heard:
        known[radio] = strengths[RADIOS.index(radio)]
        passed = reception.hear(radio, sent(number, known[radio]), radio, at)
        assert passed is None or passed.rssi == max(known.values())
        best, signal = reception.signals(ADDRESS, at)[0]
        assert (signal.rssi, signal.handle) == (max(known.values()), best)


def heard_by(reception, *deliveries):
    """Whether each delivery passes: the second, the radio, and the number or the advertisement."""
    return [
        reception.hear(radio, sent(what) if isinstance(what, int) else what, None, at) is not None
        for at, radio, what in deliveries
    ]


def test_a_radio_repeats_what_a_device_repeats_and_the_others_are_silent():
    repeated = [(at, radio, 7) for at in range(6) for radio in ("hci0", "attic")]

    assert heard_by(Reception(), *repeated) == [True, False] * 6


def test_another_radio_takes_over_when_the_first_one_hears_nothing_more():
    assert heard_by(Reception(), (0, "hci0", 7), (0.1, "attic", 7), (1.9, "attic", 7), (2.1, "attic", 7)) == [
        True,
        False,
        False,
        True,
    ]


def test_a_value_that_is_late_does_not_come_back_and_one_that_is_sent_again_does():
    reception = Reception()

    assert heard_by(reception, (0, "hci0", 1), (0.5, "hci0", 2), (0.6, "attic", 1), (0.7, "attic", 2)) == [
        True,
        True,
        False,
        False,
    ]
    assert heard_by(reception, (0.8, "hci0", 1)) == [True]


def test_the_name_and_the_services_of_earlier_packets_are_joined_and_their_data_is_not():
    reception = Reception()
    name = Advertisement(ADDRESS, "sensor", -70, ("180a",), {}, {})

    reception.hear("hci0", sent(1), None, 0.0)

    assert reception.hear("attic", name, None, 0.1) == name._replace(rssi=-60)
    assert reception.hear("hci0", sent(2), None, 1.0) == sent(2, name="sensor", services=("180a",))


def test_a_packet_passes_if_some_of_it_was_not_delivered_yet():
    both = sent(1, manufacturer={0x0334: b"answer"})

    assert heard_by(Reception(), (0, "attic", 1), (0.1, "hci0", both)) == [True, True]
    assert heard_by(Reception(), (0, "hci0", both), (0.1, "attic", 1), (0.2, "attic", both)) == [True, False, False]


@st.composite
def packets(draw):
    """Packets of one device with any of a name, services and data, from two radios that hear it in turn or not."""
    data = st.dictionaries(st.sampled_from((1, 2, 3)), st.sampled_from((b"a", b"b")), max_size=2)
    packet = st.builds(
        lambda name, rssi, services, manufacturer, service_data: Advertisement(
            ADDRESS, name, rssi, services, manufacturer, {f"s{each}": value for each, value in service_data.items()}
        ),
        st.sampled_from((None, "sensor", "other")),
        st.integers(-100, -30),
        st.sampled_from(((), ("180a",), ("181a", "180f"))),
        data,
        data,
    )
    return draw(st.lists(st.tuples(st.sampled_from(RADIOS), packet, st.floats(0, WINDOW * 1.5)), max_size=30))


@given(packets())
def test_what_passes_has_the_data_of_its_packet_alone_and_no_data_is_lost(heard):
    reception, now, last = Reception(), 0.0, {}

    for radio, packet, wait in heard:
        now += wait
        passed = reception.hear(radio, packet, None, now)
        if passed is None:
            values = [*packet.manufacturer.items(), *packet.service_data.items()]
            assert all(now - last[each] < WINDOW for each in values), "somebody has just delivered it"
            continue
        assert (passed.manufacturer, passed.service_data) == (packet.manufacturer, packet.service_data)
        assert packet.name in (None, passed.name)
        assert set(packet.services) <= set(passed.services)
        last |= dict.fromkeys([*packet.manufacturer.items(), *packet.service_data.items()], now)


def test_a_signal_counts_for_a_while_and_not_after_its_radio_has_left():
    reception = Reception()
    heard_by(reception, (0, "hci0", sent(1, -40)), (1, "attic", sent(1, -80)), (1, "cellar", sent(1, -90)))

    assert [name for name, _ in reception.signals(ADDRESS, 2)] == ["hci0", "attic", "cellar"]
    assert [name for name, _ in reception.signals(ADDRESS, SIGNAL + 0.5)] == ["attic", "cellar"]
    assert (reception.devices_of("attic", 2), reception.devices_of("hci0", SIGNAL + 0.5)) == (1, 0)
    reception.leave("attic")
    assert [name for name, _ in reception.signals(ADDRESS, 2)] == ["hci0", "cellar"]
    assert reception.signals("AA:BB:CC:DD:EE:00", 2) == []


def test_a_device_that_sends_ever_new_services_costs_no_more_memory():
    reception = Reception()

    for number in range(200):
        data = {f"{number:08x}": b"x"}
        passed = reception.hear(
            "hci0", Advertisement(ADDRESS, None, -60, (f"{number}",), {number: b"x"}, data), None, 0.0
        )

    assert (len(passed.services), passed.services[-1]) == (MAX_ENTRIES, "199")
    assert (passed.manufacturer, passed.service_data) == ({199: b"x"}, {"000000c7": b"x"})


def test_a_city_full_of_devices_is_forgotten_again():
    reception = Reception()

    for number in range(600):
        reception.hear("hci0", sent(1, address=str(number)), None, 0.0)

    assert reception.devices_of("hci0", 0.0) == 512
