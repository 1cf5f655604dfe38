"""What the nodes of one app say of themselves, retained at the broker, and what people ask of them."""
