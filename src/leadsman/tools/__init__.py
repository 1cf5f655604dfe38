"""Programs around the framework: the command line, the doctor, simulated days, the demo. Nothing else needs them."""
