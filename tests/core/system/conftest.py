from leadsman_rigs.system import broker, client, guarded, home, home_assistant, service  # noqa: F401
