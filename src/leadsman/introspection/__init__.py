"""One document of what is registered and how it is doing, its schema, and the answers to whoever asks for it."""
