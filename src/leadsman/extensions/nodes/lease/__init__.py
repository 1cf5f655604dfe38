"""Leases: which node of a cluster may do what. An engine that exists keeps them; there is no election here."""
