"""The rows whose faults tests of pytest produce."""

from fault_matrix.row import P0, P1, P2, covered

SYSTEM, INTEGRATION = "tests/system", "tests/integration"
CLOSING = f"{SYSTEM}/test_closing_broker.py"
DISTANT, OUTAGES = "tests/core/mqtt/test_distant_broker.py", f"{INTEGRATION}/test_broker_outages.py"

covered(
    "11",
    P0,
    "mosquitto closes on a message: above its size limit, or denied by its access list",
    "the topic is found, named and rests; the others lose nothing",
    CLOSING + "::test_a_topic_on_which_the_broker_closes_the_connection_costs_the_other_devices_nothing",
    CLOSING + "::test_the_topic_is_named_and_no_other_client_is_blamed",
)
covered(
    "1b",
    P0,
    "the first of two brokers is killed, frozen, or refuses the password; it comes back",
    "the second one gets every reading, and what is retained; the app goes back to the first",
    *(
        f"{SYSTEM}/test_two_brokers.py::{name}"
        for name in (
            "test_the_primary_is_killed_and_the_replacement_gets_every_reading_and_all_that_is_retained",
            "test_a_frozen_primary_is_left_for_the_replacement",
            "test_a_primary_that_refuses_the_password_is_passed_over",
            "test_the_app_goes_back_when_the_primary_returns_and_loses_nothing",
        )
    ),
)
covered(
    "26b",
    P1,
    "a broker names another one (Server Reference)",
    "it is not followed, and the log has the name",
    f"{SYSTEM}/test_two_brokers.py::test_a_server_reference_is_not_followed",
)
covered(
    "24b",
    P0,
    "a calendar server answers with 20 MB, an XML bomb, noise, or nothing",
    "a named error; the next call is unharmed",
    f"{SYSTEM}/test_caldav.py::test_what_a_server_does_wrong_is_a_named_error_and_the_next_call_unharmed",
    f"{SYSTEM}/test_caldav.py::test_an_xml_bomb_costs_neither_time_nor_memory",
    f"{SYSTEM}/test_caldav.py::test_an_event_that_is_a_bomb_or_makes_no_sense_costs_only_itself",
)
covered(
    "24c",
    P0,
    "settings in TOML and YAML, payloads in JSON, and calendars that are bombs",
    "each is refused by a named error within 2 s and 150 MB",
    f"{SYSTEM}/test_bombs.py::test_a_bomb_is_refused_by_a_named_error_within_two_seconds_and_150_megabytes",
)
covered(
    "27b",
    P1,
    "a broker that breaks the rules of MQTT in ten ways",
    "the reason is named, no reading is lost, nothing grows",
    f"{SYSTEM}/test_faulty_brokers.py::test_the_reason_is_named_no_reading_is_lost_and_nothing_grows",
)
covered(
    "28",
    P1,
    "a broker that never answers the SYN",
    "a timeout of 5 s; SIGTERM is not delayed",
    f"{SYSTEM}/test_process.py::test_a_broker_that_swallows_connections_does_not_delay_the_end",
)
covered(
    "29",
    P1,
    "a name server that never answers",
    "polls and exit are not delayed",
    f"{SYSTEM}/test_faulty_brokers.py::test_a_name_server_that_keeps_silent_holds_up_neither_the_polls_nor_the_stop",
)
covered(
    "32",
    P1,
    "a slow and distant broker, with a backlog",
    "the backlog arrives whole; live readings follow it",
    f"{SYSTEM}/test_distant_broker.py::test_a_backlog_arrives_whole_also_if_the_connection_breaks",
    f"{SYSTEM}/test_distant_broker.py::test_where_mosquitto_allows_few_in_flight_live_readings_follow_the_backlog",
)
covered(
    "33",
    P1,
    "a network that flips bits, cuts connections and falls silent",
    "each reading arrives; under TLS and without",
    f"{SYSTEM}/test_hostile_network.py::test_the_app_lives_and_delivers_again_when_the_network_is_well",
    f"{SYSTEM}/test_hostile_network.py::test_every_reading_arrives",
)
covered(
    "34",
    P1,
    "another client with the same client id",
    "both report that, and slow down",
    f"{SYSTEM}/test_service.py::test_two_apps_with_one_client_id_are_told_and_slow_down",
)
covered(
    "37",
    P1,
    "the will: a kill, and a quick restart",
    "offline after its delay, and no flapping",
    f"{SYSTEM}/test_broker.py::test_the_will_speaks_when_the_process_is_killed_and_only_after_its_delay",
    f"{SYSTEM}/test_broker.py::test_an_app_that_is_restarted_quickly_does_not_flap_to_offline",
    OUTAGES + "::test_at_the_end_the_status_says_offline_once_and_the_will_stays_unsaid",
)
covered(
    "38",
    P1,
    "SUBACK refuses",
    "is reported; commands of other devices arrive",
    f"{SYSTEM}/test_broker.py::test_a_refused_subscription_is_seen",
    f"{INTEGRATION}/test_commands.py::test_a_refused_subscription_is_told_with_what_to_do_and_costs_nothing_else",
)
covered(
    "39",
    P1,
    "a command that the broker has kept",
    "is refused",
    f"{INTEGRATION}/test_commands.py::test_a_retained_command_is_ignored",
    f"{INTEGRATION}/test_commands.py::test_a_command_that_fails_is_told_and_never_made_again",
)
covered(
    "39b",
    P0,
    "the acknowledgement of a command is lost, and the broker sends it again",
    "it is executed once; after a restart it is refused, and its sender is told",
    f"{SYSTEM}/test_redelivery.py::test_a_command_whose_acknowledgement_is_lost_is_executed_once",
    f"{SYSTEM}/test_redelivery.py::"
    "test_a_command_that_a_killed_run_has_executed_is_refused_and_one_that_waited_is_executed",
)
covered(
    "40",
    P1,
    "2,000 commands of garbage, of 100 kB, 30,000 levels deep",
    "are refused; memory grows by less than 30 MB",
    f"{SYSTEM}/test_service.py::test_a_flood_of_garbage_leaves_the_app_alive_and_small",
)
covered(
    "41",
    P1,
    "a response topic that an attacker chose",
    "the answer goes below the app's own prefix",
    f"{INTEGRATION}/test_commands.py::test_an_app_is_no_reflector",
    "tests/core/mqtt/test_answers.py::test_an_answer_goes_nowhere_but_below_the_prefix",
)
covered(
    "42",
    P1,
    "a large backlog is replayed",
    "quickly, and live readings follow it in order",
    DISTANT + "::test_a_backlog_is_made_up_for_quickly_and_live_readings_do_not_wait_for_it",
    DISTANT + "::test_live_readings_follow_a_backlog_in_order_and_only_the_newest_is_retained",
)
covered(
    "46",
    P1,
    "an adapter that hangs while it opens; an unplugged device; a port in use",
    "only its devices fail, and they are read again later",
    f"{SYSTEM}/test_serial.py::test_an_unplugged_port_is_noticed_at_once_and_read_again_after_it_is_back",
    f"{SYSTEM}/test_serial.py::test_opening_that_hangs_times_out_off_the_loop",
    f"{SYSTEM}/test_serial.py::test_a_port_has_one_user_at_a_time",
    f"{INTEGRATION}/test_polling.py::test_an_adapter_that_hangs_while_opening_or_closing_holds_up_nobody",
)
covered(
    "47",
    P1,
    "a serial device that sends a megabyte of garbage",
    "the next line is read; memory is bounded",
    f"{SYSTEM}/test_serial.py::test_a_megabyte_of_garbage_is_survived_and_the_next_line_read",
    "tests/adapters/serial/test_framing.py::test_whatever_comes_in_memory_is_bounded_and_every_byte_accounted_for",
)
covered(
    "48",
    P1,
    "advertisements of a whole city",
    "few devices are remembered",
    "tests/adapters/ble/test_radio.py::test_the_devices_of_a_whole_city_are_not_all_remembered",
)
covered(
    "49",
    P1,
    "a handler that blocks the event loop",
    "is named with its line within a second",
    "tests/extensions/watchdog/system/test_watchdog.py::test_the_handler_that_blocks_the_loop_is_named_with_the_stack",
    "tests/extensions/watchdog/system/test_watchdog.py::test_the_watchdog_is_not_fed_while_no_data_is_fresh",
)
covered(
    "50",
    P1,
    "a clock that begins in 1970 and is set later",
    "polls on time; the readings that waited get the right time",
    OUTAGES + "::test_readings_taken_before_the_clock_was_set_arrive_with_the_right_time",
    OUTAGES + "::test_a_clock_that_is_set_while_connected_changes_no_reading_that_has_arrived",
)
covered(
    "51",
    P1,
    "TLS: a wrong authority, a wrong name, an expired certificate, a port without TLS",
    "is refused with a reason; nothing goes in clear",
    f"{SYSTEM}/test_broker.py::test_a_certificate_that_does_not_fit_is_refused_unless_insecure_is_asked_for",
    f"{SYSTEM}/test_broker.py::test_a_url_with_the_wrong_scheme_for_its_port_is_answered_with_the_right_one",
    f"{SYSTEM}/test_faulty_brokers.py::test_a_handshake_of_tls_that_does_not_end_well_is_a_named_error",
)
covered(
    "52",
    P1,
    "HTTP: a foreign name, a wrong token, slow and half requests, any request at all",
    "is refused; the app runs on",
    "tests/extensions/http/test_rules.py::test_another_name_is_not_served",
    "tests/extensions/http/test_rules.py::test_a_token_must_be_the_right_one",
    "tests/extensions/http/test_server.py::test_many_slow_connections_keep_nobody_out",
    "tests/extensions/http/test_server.py::test_what_is_no_request_is_refused_and_nothing_is_logged",
    "tests/extensions/http/test_fuzz.py::test_any_path_method_and_headers_are_answered_and_never_with_a_fault",
)
covered(
    "54",
    P1,
    "a second Ctrl-C; a log that nobody reads any more",
    "ends at once; lives on without its log",
    f"{SYSTEM}/test_process.py::test_a_second_interrupt_ends_it_now",
    f"{SYSTEM}/test_process.py::test_a_log_nobody_reads_any_more_does_not_keep_it_alive",
)
covered(
    "54b",
    P0,
    "nobody reads the log: a full pipe or socket, a terminal after Ctrl-S, a file whose disk does not answer",
    "every device is read; what the log lacks is counted; the process ends with its own code",
    f"{SYSTEM}/test_logs.py::test_a_log_that_nobody_reads_costs_no_reading_and_says_how_many_lines_it_lacks",
    f"{SYSTEM}/test_logs.py::test_a_process_whose_output_nobody_reads_ends_with_its_own_code",
    "tests/core/monitoring/test_log_settings.py::test_a_file_whose_disk_does_not_answer_keeps_nobody_waiting",
)
covered(
    "58",
    P2,
    "more is asked than the machine can do",
    "each device gets its share; what was missed is counted",
    f"{INTEGRATION}/test_overload.py::test_each_device_gets_its_share",
    f"{INTEGRATION}/test_overload.py::test_each_point_of_a_schedule_is_a_poll_or_counted_as_missed",
)
covered(
    "59",
    P2,
    "another broker (amqtt), MQTT 3.1.1 only",
    "is spoken to in its version",
    f"{SYSTEM}/test_broker.py::test_an_old_broker_is_spoken_to_in_mqtt_3_1_1",
    f"{SYSTEM}/test_inspect.py::test_a_broker_that_speaks_3_1_1_only_carries_commands_and_introspection",
)
covered(
    "60",
    P2,
    "any bytes, to each parser",
    "a value or a named error",
    "tests/core/mqtt/test_codec.py::test_random_bytes_end_in_a_named_error_or_are_read",
    "tests/core/mqtt/test_codec.py::test_broken_bytes_end_in_a_named_error_or_are_read_and_memory_is_bounded",
    "tests/core/mqtt/test_answers.py::test_whatever_comes_is_a_value_that_can_be_answered_with_or_a_named_error",
    "tests/adapters/caldav/test_recurrence.py::test_whatever_a_rule_says_it_is_expanded_or_costs_only_itself",
    "tests/adapters/ble/test_gatt.py::test_whatever_is_advertised_is_a_reading_or_a_named_error",
)
covered(
    "66",
    P0,
    "a bus is away for ten minutes; when it is back, one member of the circuit that all share is dead",
    "the others are read again, whichever is dead",
    f"{INTEGRATION}/test_circuit.py::test_a_dead_member_keeps_no_healthy_one_away_when_the_bus_is_back",
    "tests/core/resilience/test_circuit.py"
    "::test_every_healthy_member_of_a_shared_circuit_is_read_again_however_many_others_are_dead",
)
covered(
    "66b",
    P0,
    "of ten units on one line up to nine are dead",
    "the others are read in time; a unit that is back is read within two of its intervals",
    "tests/core/resilience/test_line.py::test_healthy_units_pay_one_short_look_at_the_most_whatever_is_dead",
    "tests/core/resilience/test_line.py::test_a_unit_that_is_back_is_read_within_two_of_its_intervals",
    f"{INTEGRATION}/test_several_devices_on_one_line.py::test_healthy_units_do_not_pay_for_dead_ones",
)
