"""The demo: the machine's own sensors and a simulated meter on a real serial terminal, with faults on purpose."""
