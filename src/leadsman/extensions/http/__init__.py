"""The door over HTTP to `leadsman.core.introspection.service`: documents, requests about a device, a stream of what
happens, and a page for people. It is off unless ``http.bind`` is set, and nothing of it is imported then."""
