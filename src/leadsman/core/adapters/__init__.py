"""What the core knows of adapters: their protocol, how they are opened and closed, and where they get their wires."""
