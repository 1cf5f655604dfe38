"""Introspection: a document about the registrations and their state, its schema, and the answers to requests for it."""
